"""Small models of each family of transformers' models: settings, tokenizers, directories."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.pretrained import PretrainedModel, parameter_shapes
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import Objective
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Vocabulary
from tests.bert_jax.drawn import normal_params

TEXTS = (
    "the cat sat on the mat",
    "a dog saw the cat here",
    "where is the mat? on a dog!",
    "naïve cafés 北京",
)
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")

SMALL = ModelConfig(
    num_layers=3,
    hidden_size=24,
    num_heads=3,
    intermediate_size=20,
    max_position_embeddings=40,
    activation="gelu_exact",
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1, "layer_norm_epsilon": 1e-5},
    "xlm-roberta": {"type_vocab_size": 1, "layer_norm_epsilon": 1e-5},
    "distilbert": {"type_vocab_size": 0, "activation": "relu", "pooler": "relu"},
    "megatron-bert": {"normalization_place": "pre", "embedding_normalization": "none"},
    "electra": {"embedding_size": 16, "pooler": "gelu_exact"},
    "albert": {"num_layers": 4, "embedding_size": 16, "layer_groups": 2, "activation": "gelu_tanh"},
    "modernbert": {
        "num_layers": 4,
        "type_vocab_size": 0,
        "positions": "rotary",
        "rotary_base": 160_000.0,
        "rotary_base_local": 10_000.0,
        "normalization_place": "pre",
        "feed_forward": "geglu",
        "biases": "none",
        "attention_window": 3,
        "global_every": 3,
        "layer_norm_epsilon": 1e-5,
        "pooler": "transform",
    },
}
"""Settings by `model_type` that differ from `SMALL`."""


def byte_bpe(special_tokens: tuple[str, ...] = ()) -> Tokenizer:
    """Byte-level BPE whose first pieces are these."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[*special_tokens], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE with RoBERTa's special tokens, <mask> as the last id."""
    tokenizer = byte_bpe(ROBERTA_TOKENS)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    sep, cls = ((token, tokenizer.token_to_id(token)) for token in ("</s>", "<s>"))
    tokenizer.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)
    return tokenizer


def unigram_tokenizer() -> Tokenizer:
    """Unigram pieces in the order of XLM-RoBERTa's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=80, special_tokens=[*ROBERTA_TOKENS], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return tokenizer


def modern_tokenizer() -> Tokenizer:
    """Byte-level BPE with BERT's special tokens, which are no pieces of its model and come last but one."""
    tokenizer = byte_bpe()
    tokenizer.add_special_tokens(
        [AddedToken(token, lstrip=token == "[MASK]", normalized=False) for token in SPECIAL_TOKENS]
    )
    tokenizer.add_tokens(["[unused0]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def word_tokenizer() -> Tokenizer:
    """BERT's WordPiece."""
    letters = "abcdefghijklmnopqrstuvwxyz?!"
    words = " ".join(TEXTS).split()
    pieces = dict.fromkeys((*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), *words))
    return make_tokenizer(Vocabulary("wordpiece", "uncased", "\n".join(pieces).encode()))


@functools.cache
def _tokenizer(model_type: str) -> str:
    # Training Unigram pieces does not give the same twice.
    make = {"roberta": byte_tokenizer, "xlm-roberta": unigram_tokenizer, "modernbert": modern_tokenizer}
    return make.get(model_type, word_tokenizer)().to_str()


def tokenizer_of(model_type: str) -> Tokenizer:
    """The kind of tokenizer that models of a family have."""
    return Tokenizer.from_str(_tokenizer(model_type))


def small_config(model_type: str, **changes: Any) -> ModelConfig:
    """A small encoder of a family, with an embedding for each token of `tokenizer_of` and three more."""
    size = tokenizer_of(model_type).get_vocab_size() + 3
    settings = {"vocab_size": size, **ENCODERS[model_type], **changes}
    return dataclasses.replace(SMALL, **settings)


def small_model(
    model_type: str, objective: Objective | None, parts: tuple[str, ...], **changes: Any
) -> PretrainedModel:
    """A model of random parameters that has these parts."""
    config = small_config(model_type, **changes)
    params = normal_params(parameter_shapes(config), seed=0, mean=0.0, deviation=0.5)
    if config.pooler == "transform":  # one and the same in transformers
        params["pooler"] = {name: params["language_model"][name] for name in ("dense", "layer_norm")}
    return PretrainedModel(
        name="small",
        config=config,
        params={part: params[part] for part in parts},
        tokenizer=tokenizer_of(model_type),
        vocabulary=None,
        family=model_type,
        objective=objective,
    )


def save_tokenizer(directory: Path, model_type: str) -> Path:
    """Writes the `tokenizer.json` of a family into a directory."""
    tokenizer_of(model_type).save(str(directory / "tokenizer.json"))
    return directory
