"""Makes the directory of a finished `bert-jax pretrain` run of a tiny model, without any training."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import OBJECTIVES, MaskedLM, Objective
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.retention import Kept
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.workdir.record import RunRecord, write_record
from data_pipeline.config import DataConfig, Phase
from data_pipeline.corpus.tokenizer import Tokenizer, WordPiece
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Casing
from data_pipeline.preparing.vocabulary import train_byte_bpe, train_sentencepiece
from tests.bert_jax.drawn import draw_params, normal_params
from tests.bert_jax.encoders import ENCODERS

WORDS = "the a cat dog mat sat on saw was here Paris is city of café naïve caf ##é paris nai ##ve naive cafe"
TEXTS = (
    "The cat sat on the mat.",
    "Paris is a CITY of cafés; naïve!",
    "a  dog\tsaw [the] cat",
    "北京 is here 😀",
    "",
    "x" * 120 + " cat",
)


def make_tokenizer(kind: str, casing: Casing) -> Tokenizer:
    """A vocabulary of a few dozen pieces that covers most of `TEXTS`."""
    if kind == "sentencepiece":
        return train_sentencepiece([*TEXTS[:4], WORDS] * 20, 120, casing)
    if kind == "byte_bpe":
        return train_byte_bpe([*TEXTS[:4], WORDS] * 20, 300, casing)
    letters = "abcdefghijklmnopqrstuvwxyz.,;![]CITY北京"
    pieces = [*letters, *(f"##{letter}" for letter in letters), *WORDS.split(), "The", "[unused]"]
    return WordPiece([*SPECIAL_TOKENS, *dict.fromkeys(pieces)], casing)


def make_experiment(
    objective: str, vocab_size: int, num_layers: int = 2, encoder: str = "bert"
) -> Experiment:
    """Layers of width 16, float32; settings differ from the defaults, so that tests notice a lost one."""
    return Experiment(
        model=dataclasses.replace(
            ModelConfig(**ENCODERS[encoder]),
            vocab_size=vocab_size,
            num_layers=num_layers,
            hidden_size=16,
            num_heads=4,
            intermediate_size=24,
            max_position_embeddings=24,
            dropout_rate=0.2,
            attention_dropout_rate=0.3,
            layer_norm_epsilon=1e-3,
            initializer_range=0.05,
        ),
        data=DataConfig(
            pairing="next_sentence" if objective == "mlm_nsp" else "contiguous",
            phases=(Phase(max_seq_length=16, max_predictions_per_seq=3),),
        ),
        num_train_steps=10,
        global_batch_size=8,
        objective=MaskedLM(),
    ).with_objective(OBJECTIVES[objective]())


def random_params(model: ModelConfig) -> dict:
    """Parameters of which none is zero, biases included."""
    return normal_params(PretrainingTask(MaskedLM(), model).abstract_params(), 3, mean=0.3, deviation=0.2)


def trainable_params(model: ModelConfig, objective: Objective = MaskedLM()) -> dict:  # noqa: B008 (a value)
    """Parameters of a scale that a few dozen steps can learn from."""
    return draw_params(PretrainingTask(objective, model).abstract_params())


def make_run(
    workdir: Path,
    objective: str = "mlm_nsp",
    kind: str = "wordpiece",
    casing: Casing = "uncased",
    make_params: Callable[[ModelConfig], dict] = random_params,
    num_layers: int = 2,
    encoder: str = "bert",
) -> tuple[Experiment, Tokenizer]:
    """Fills a work directory: config.json, tokenizer, one checkpoint at step 10, metrics.

    The model has seven rows more than the vocabulary has entries.
    """
    tokenizer = make_tokenizer(kind, casing)
    experiment = make_experiment(objective, tokenizer.vocab_size + 7, num_layers, encoder)
    workdir.mkdir()
    tokenizer.save(workdir / "tokenizer")
    write_record(workdir, RunRecord("tiny", experiment, "fingerprint"))
    row = {"step": 10, "split": "heldout", "mlm_accuracy": 0.25, "mlm_perplexity": 7.0}
    (workdir / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    checkpoints = Checkpoints(workdir, Kept(3))
    checkpoints.save(10, {"params": make_params(experiment.model)})
    checkpoints.close()
    return experiment, tokenizer
