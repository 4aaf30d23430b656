"""Families of Hugging Face's models: their tables, what they refuse, and the form of their tokenizers."""

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.finetuning_config import FeatureConfig, TransformersHead
from bert_jax.formats import huggingface
from bert_jax.formats.convert import convert
from bert_jax.formats.families import FAMILIES, nearest_family
from bert_jax.formats.huggingface_tokenizer import make_tokenizer, write_tokenizer
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import TaskHead
from bert_jax.inference.fill_mask import fill_mask
from bert_jax.objectives import (
    LeftToRight,
    MaskedLM,
    MaskedLMAndNSP,
    MaskedLMAndSOP,
    Objective,
    ReplacedTokenDetection,
)
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Vocabulary
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import encode_pairs, encode_texts, make_task_tokenizer
from experiments import EXPERIMENTS
from tests.bert_jax.formats.family_directories import ENCODERS, small_config, small_model, tokenizer_of
from tests.bert_jax.small_run import ENCODERS as PARTS

LANGUAGE_MODEL = ("encoder", "language_model")


def written(directory: Path, model_type: str, **changes: Any) -> Path:
    """A directory of a masked language model of a family."""
    directory.mkdir()
    huggingface.write(directory, small_model(model_type, MaskedLM(), LANGUAGE_MODEL, **changes))
    return directory


def change(directory: Path, **fields: Any) -> Path:
    """Changes fields of a directory's config.json; None removes one."""
    path = directory / "config.json"
    settings = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in settings.items() if value is not None}))
    return directory


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_model_comes_back_as_it_was(tmp_path: Path, model_type: str) -> None:
    model = small_model(model_type, MaskedLM(), LANGUAGE_MODEL)
    read = open_model(written(tmp_path / "model", model_type))
    assert (read.config, read.family, read.objective) == (model.config, model_type, MaskedLM())
    assert read.left_out == ()
    for part in LANGUAGE_MODEL:
        jax.tree.map(np.testing.assert_array_equal, read.params[part], model.params[part])
    assert read.tokenizer.to_str() == model.tokenizer.to_str()


@pytest.mark.parametrize("objective", [MaskedLMAndNSP(), MaskedLMAndSOP()])
@pytest.mark.parametrize(("model_type", "usual"), [("bert", MaskedLMAndNSP()), ("albert", MaskedLMAndSOP())])
def test_what_a_head_on_pairs_predicts_is_told_or_what_its_familys_does(
    tmp_path: Path, model_type: str, usual: Objective, objective: Objective
) -> None:
    model = small_model(model_type, objective, (*LANGUAGE_MODEL, "pooler", "next_sentence"))
    huggingface.write(tmp_path, model)
    assert open_model(tmp_path).objective == objective
    change(tmp_path, bert_jax=None)
    assert open_model(tmp_path).objective == usual


@pytest.mark.parametrize(
    ("model_type", "class_name", "name"),
    [
        ("roberta", "BertForSequenceClassification", "classifier.dense.weight"),
        ("xlm-roberta", "BertForSequenceClassification", "classifier.dense.weight"),
        ("electra", "BertForMultipleChoice", "sequence_summary.summary.weight"),
    ],
)
def test_the_layer_before_a_classifier_comes_back_as_the_pooler(
    tmp_path: Path, model_type: str, class_name: str, name: str
) -> None:
    model = small_model(model_type, None, ("encoder", "pooler"))
    classifier = {
        "kernel": np.ones((model.config.hidden_size, 1), np.float32),
        "bias": np.ones(1, np.float32),
    }
    exports_as = TransformersHead(class_name)
    head = TaskHead("any", (), {"classifier": classifier}, FeatureConfig(), exports_as)
    huggingface.write(tmp_path, dataclasses.replace(model, head=head, facts={"task": "any"}))
    assert name in load_file(tmp_path / "model.safetensors")
    jax.tree.map(np.testing.assert_array_equal, open_model(tmp_path).params["pooler"], model.params["pooler"])


@pytest.mark.parametrize("model_type", ["albert", "distilbert", "modernbert"])
def test_dropout_of_heads_that_are_not_there_is_left_to_transformers(tmp_path: Path, model_type: str) -> None:
    settings = json.loads((written(tmp_path / "model", model_type) / "config.json").read_text())
    assert not {name for name in settings if "classif" in name and "dropout" in name}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"family": "foo"}, r"config\.json: family is 'foo'; valid: bert, "),
        ({"family": ["x"]}, r"config\.json: family is \['x'\]; valid: bert, "),
        ({"objective": {}}, r"config\.json"),
    ],
)
def test_a_damaged_config_of_npz_is_named(tmp_path: Path, fields: dict, message: str) -> None:
    convert(written(tmp_path / "hf", "bert"), tmp_path / "npz", "npz")
    with pytest.raises(UserError, match=message):
        open_model(change(tmp_path / "npz", **fields))


def test_the_head_of_a_discriminator_survives_npz(tmp_path: Path) -> None:
    model = small_model("electra", None, ("encoder", "replaced_token"))
    (tmp_path / "hf").mkdir()
    huggingface.write(tmp_path / "hf", model)
    convert(tmp_path / "hf", tmp_path / "npz", "npz")
    read = open_model(tmp_path / "npz")
    assert sorted(read.params) == ["encoder", "replaced_token"]
    jax.tree.map(np.testing.assert_array_equal, read.params, model.params)


@pytest.mark.parametrize("biases", ["none", "norms", "all"])
@pytest.mark.parametrize(("window", "every"), [(None, None), (2, None), (2, 2), (2, 3)])
def test_modernberts_biases_and_windows_come_back(
    tmp_path: Path, biases: str, window: int | None, every: int | None
) -> None:
    local = None if window is None else 30.0
    parts = {"biases": biases, "attention_window": window, "global_every": every, "rotary_base_local": local}
    read = open_model(written(tmp_path / "model", "modernbert", **parts))
    assert {name: getattr(read.config, name) for name in parts} == parts


@pytest.mark.parametrize(
    "parts",
    [
        {"attention_window": 2, "rotary_base": 30.0, "rotary_base_local": 30.0},
        {"attention_window": 2, "global_every": 1},
    ],
)
def test_the_same_encoder_in_other_settings_is_written(tmp_path: Path, parts: dict) -> None:
    read = open_model(written(tmp_path / "model", "modernbert", **parts)).config
    given = dataclasses.replace(read, **parts)
    for number in range(read.num_layers):
        ours, theirs = given.of_layer(number), read.of_layer(number)
        assert (ours.rotary_base, ours.attention_window) == (theirs.rotary_base, theirs.attention_window)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_an_encoder_alone_has_no_prefix(tmp_path: Path, model_type: str) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    model = small_model(model_type, None, ("encoder",))
    huggingface.write(directory, model)
    family = FAMILIES[model_type]
    names = load_file(directory / "model.safetensors")
    assert not [name for name in names if name.startswith(family.prefix)]
    assert {f"{family.prefix}{name}" for name in names} <= set(
        load_file(written(tmp_path / "other", model_type) / "model.safetensors")
    )
    read = open_model(directory)
    jax.tree.map(np.testing.assert_array_equal, read.params, model.params)


def test_positions_stand_behind_that_of_padding(tmp_path: Path) -> None:
    directory = written(tmp_path / "model", "roberta")
    table = load_file(directory / "model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    ours = open_model(directory)
    assert json.loads((directory / "config.json").read_text())["max_position_embeddings"] == len(table) == 42
    assert ours.config.max_position_embeddings == 40
    assert not table[:2].any()
    embeddings = ours.params["encoder"]["embeddings"]["position_embeddings"]["embedding"]
    np.testing.assert_array_equal(table[2:], embeddings)


def test_positions_are_counted_from_the_padding_of_the_tokenizer(tmp_path: Path) -> None:
    directory = written(tmp_path / "model", "roberta")
    fields = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**fields, "pad_token_id": 2}))
    with pytest.raises(UserError, match="has pad_token_id 2, and the tokenizer's <pad> is 1; positions"):
        open_model(directory)


def test_the_family_of_a_model_is_its_own_or_the_first_that_has_its_parts() -> None:
    for model_type in set(ENCODERS) - {"roberta", "xlm-roberta"}:
        assert nearest_family(small_config(model_type)).model_type == model_type
    assert nearest_family(small_config("roberta")).model_type == "bert"  # its encoder is a BERT's
    assert huggingface.family_of(small_model("roberta", None, ("encoder",))).model_type == "roberta"
    assert nearest_family(EXPERIMENTS["modern_base"].model).model_type == "modernbert"
    assert nearest_family(EXPERIMENTS["base"].model).model_type == "bert"
    for name, model_type in (
        ("electra_small", "electra"),
        ("electra_base", "electra"),
        ("albert_base", "albert"),
    ):
        run = EXPERIMENTS[name]
        assert nearest_family(run.model, run.objective.transformers_class).model_type == model_type
        assert nearest_family(run.model).model_type == model_type  # as after fine-tuning


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        (
            "electra",
            {"activation": "relu"},
            "no ELECTRA with activation relu, only gelu_exact; `bert-jax convert",
        ),
        ("electra", {"layer_groups": 1}, "no ELECTRA with layer_groups 1, only None"),
        ("albert", {"embedding_size": None}, "no ALBERT with embedding_projection none, only linear"),
        (
            "roberta",
            {"activation": "relu"},
            "has no RoBERTa with activation relu, only gelu_exact; `bert-jax convert",
        ),
        ("distilbert", {"type_vocab_size": 2}, "no DistilBERT with segments learnt, only none"),
        (
            "distilbert",
            {"layer_norm_epsilon": 1e-5},
            "with layer_norm_epsilon 1e-05, only 1e-12",
        ),
        ("distilbert", {"attention": "causal"}, "no DistilBERT with attention causal, only bidirectional"),
        (
            "megatron-bert",
            {"embedding_normalization": "same"},
            "embedding_normalization same, only none",
        ),
        ("modernbert", {"feed_forward": "swiglu"}, "no ModernBERT with feed_forward swiglu, only geglu"),
        ("modernbert", {"normalization": "rms_norm"}, "with normalization rms_norm, only layer_norm"),
    ],
)
def test_parts_that_a_family_lacks_are_refused_by_name(
    tmp_path: Path, model_type: str, changes: dict, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        written(tmp_path / "model", model_type, **changes)


def test_the_nearest_family_tells_what_an_encoder_of_no_family_has() -> None:
    model = small_config("modernbert", normalization="rms_norm", biases="none")
    with pytest.raises(
        UserError, match="no ModernBERT with normalization rms_norm, only layer_norm; `bert-jax convert"
    ):
        nearest_family(model).entries(model)


@pytest.mark.parametrize("encoder", PARTS)
def test_every_encoder_has_a_nearest_family(encoder: str) -> None:
    assert nearest_family(small_config("bert", **PARTS[encoder])).model_type in FAMILIES


def test_objectives_without_a_class_are_refused(tmp_path: Path) -> None:
    both = small_model("modernbert", MaskedLMAndNSP(), (*LANGUAGE_MODEL, "next_sentence"))
    with pytest.raises(UserError, match="among those of ModernBERT for small, trained by objective mlm_nsp"):
        huggingface.write(tmp_path, both)
    assert list(tmp_path.iterdir()) == []
    causal = small_model("roberta", LeftToRight(), LANGUAGE_MODEL, attention="causal")
    assert huggingface.transformers_class(causal) == "RobertaForCausalLM"


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_masked_language_model_is_written_without_a_pooler(tmp_path: Path, model_type: str) -> None:
    huggingface.write(tmp_path, small_model(model_type, MaskedLM(), ("pooler", *LANGUAGE_MODEL)))
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names == set(load_file(written(tmp_path / "other", model_type) / "model.safetensors"))


def test_a_discriminator_comes_back_as_it_was(tmp_path: Path) -> None:
    model = small_model("electra", ReplacedTokenDetection(), ("encoder", "replaced_token"))
    huggingface.write(tmp_path, model)
    assert huggingface.transformers_class(model) == "ElectraForPreTraining"
    read = open_model(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, read.params, model.params)
    assert huggingface.transformers_class(read) == "ElectraForPreTraining"


def test_a_pooler_that_a_family_lacks_is_refused(tmp_path: Path) -> None:
    model = small_model("modernbert", None, ("encoder", "pooler"), pooler="tanh")
    with pytest.raises(UserError, match="no ModernBERT with pooler tanh, only transform; `bert-jax convert"):
        huggingface.write(tmp_path, model)


@pytest.mark.parametrize(
    ("model_type", "fields", "message"),
    [
        ("roberta", {"hidden_act": "relu"}, "hidden_act 'relu'; valid: 'gelu'"),
        ("roberta", {"add_cross_attention": True}, "add_cross_attention True; valid: False"),
        ("roberta", {"pad_token_id": "1"}, r"config\.json: pad_token_id is '1'; it must be a number"),
        ("modernbert", {"classifier_activation": ["x"]}, "must be the same as hidden_activation"),
        ("roberta", {"pad_token_id": 50}, "max_position_embeddings is -9; it must be"),
        ("distilbert", {"activation": "tanh"}, "activation 'tanh'; valid: 'gelu'"),
        ("electra", {"is_decoder": True}, "is_decoder True; valid: False"),
        ("electra", {"embedding_size": 24}, r"word_embeddings\.weight is \[79, 16\] instead of"),
        ("albert", {"inner_group_num": 2}, "inner_group_num 2; valid: 1"),
        ("albert", {"num_hidden_groups": 3}, r"layer_groups \(3\) does not divide model\.num_layers \(4\)"),
        ("modernbert", {"hidden_activation": "relu"}, "hidden_activation 'relu'; valid: 'gelu'"),
        ("modernbert", {"classifier_activation": "silu"}, "must be the same as hidden_activation"),
        ("modernbert", {"decoder_bias": False}, "decoder_bias False; valid: True"),
        ("modernbert", {"mlp_bias": True}, r"attention_bias, .* norm_bias must be all true, all false, or"),
        ("modernbert", {"attention_bias": True, "mlp_bias": True, "classifier_bias": True}, "or norm_bias"),
        ("modernbert", {"rope_scaling": {"type": "linear"}}, "full_attention are scaled; valid: rope_type"),
        *(
            ("modernbert", {"rope_parameters": value}, "rope_parameters must be an object that has one for")
            for value in ([1], "default", 3, {"full_attention": "default"}, {"sliding_attention": [1]})
        ),
        *(
            ("modernbert", {"rope_parameters": {"full_attention": {"rope_theta": value}}}, message)
            for value, message in (
                ("high", "rotary base of full_attention is 'high'; it must be a number"),
                ([1], r"rotary base of full_attention is \[1\]; it must be a number"),
                (0, "rotary base of full_attention is 0; it must be above 0"),
            )
        ),
        (
            "modernbert",
            {"num_hidden_layers": 10**9},
            "num_hidden_layers is 1000000000; it must be at most 1024",
        ),
        (
            "modernbert",
            {"layer_types": ["sliding_attention", *["full_attention"] * 3]},
            "layer_types must be",
        ),
        ("modernbert", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0; it must be"),
        (
            "modernbert",
            {"num_hidden_layers": 5, "layer_types": None},
            r"layers\.4\.attn_norm\.weight is",
        ),
        (
            "modernbert",
            {"intermediate_size": 30},
            r"Wi\.weight\[0/2\] is \[20, 24\] instead of \[30",
        ),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, model_type: str, fields: dict, message: str) -> None:
    directory = change(written(tmp_path / "model", model_type), **fields)
    with pytest.raises(UserError, match=message) as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(), (71, 24), (73, 24)])
def test_rows_that_make_no_equal_blocks_are_named(tmp_path: Path, shape: tuple[int, ...]) -> None:
    file = written(tmp_path / "model", "modernbert") / "model.safetensors"
    name = "model.layers.1.attn.Wqkv.weight"
    save_file({**load_file(file), name: np.zeros(shape, np.float32)}, file)
    with pytest.raises(UserError, match=rf"{name} of the shape \[.*\]; its rows must be 3 blocks of equal"):
        open_model(tmp_path / "model")


def test_positions_without_rows_are_named(tmp_path: Path) -> None:
    file = written(tmp_path / "model", "roberta") / "model.safetensors"
    name = "roberta.embeddings.position_embeddings.weight"
    save_file({**load_file(file), name: np.zeros((), np.float32)}, file)
    with pytest.raises(UserError, match=rf"{name} is \[\] instead of \[40, 24\]"):
        open_model(tmp_path / "model")


def test_modernberts_settings_of_older_versions_are_read(tmp_path: Path) -> None:
    directory = written(tmp_path / "model", "modernbert")
    expected = open_model(directory).config
    change(directory, layer_types=None, rope_parameters=None)
    assert open_model(directory).config == expected


FORMS = {
    "bert": ("[CLS] [SEP] [SEP]", [0, 0, 1]),
    "roberta": ("<s> </s> </s> </s>", [0, 0, 0, 0]),
    "xlm-roberta": ("<s> </s> </s> </s>", [0, 0, 0, 0]),
    "modernbert": ("[CLS] [SEP] [SEP]", [0, 0, 0]),
}


@pytest.mark.parametrize("model_type", FORMS)
def test_fine_tuning_writes_pairs_as_the_tokenizer_does(model_type: str) -> None:
    original = tokenizer_of(model_type)
    tokenizer = make_task_tokenizer(original)
    empty = encode_pairs(tokenizer, [""], [""], 8)
    tokens, segments = FORMS[model_type]
    assert " ".join(original.id_to_token(index) for index in empty.tokens["input_ids"][0]) == tokens
    assert empty.tokens["segment_ids"][0].tolist() == segments
    pair = ("where is the cat?", "on the mat")
    made, expected = encode_pairs(tokenizer, [pair[0]], [pair[1]], 40), original.encode(*pair)
    assert made.tokens["input_ids"][0].tolist() == expected.ids
    assert made.tokens["segment_ids"][0].tolist() == expected.type_ids
    single = encode_texts(tokenizer, [pair[0]], 40).tokens["input_ids"][0]
    assert single.tolist() == original.encode(pair[0]).ids
    short = encode_pairs(tokenizer, ["the cat sat on the mat"], ["a dog saw the cat here"], 9)
    assert [len(ids) for ids in itertools.chain(*short.tokens.values())] == [9, 9]


@pytest.mark.parametrize("model_type", FORMS)
def test_special_tokens_in_text_are_text_and_added_ones_are_found(model_type: str) -> None:
    original = tokenizer_of(model_type)
    special = make_task_tokenizer(original).special
    ids = make_task_tokenizer(original).encode([f"a {name} b" for name in special.names])
    forbidden = {original.token_to_id(name) for name in special.names} - {original.token_to_id(special.unk)}
    assert not forbidden & {int(index) for text in ids for index in text}
    added = original.token_to_id("[unused0]")
    if added is not None:
        assert added in make_task_tokenizer(original).encode(["a [unused0] b"])[0]


def test_a_word_of_bytes_has_the_pieces_that_it_has_within_a_text() -> None:
    for model_type in ("roberta", "bert"):
        original = tokenizer_of(model_type)
        tokenizer = make_task_tokenizer(original)
        words = np.concatenate(tokenizer.encode_words(["the", "cat", "sat"]))
        before = tokenizer.before_words
        assert words.tolist() == original.encode(f"{before}the cat sat", add_special_tokens=False).ids


@pytest.mark.parametrize("model_type", FAMILIES)
def test_masks_are_filled_under_their_own_name(tmp_path: Path, model_type: str) -> None:
    model = small_model(model_type, MaskedLM(), LANGUAGE_MODEL)
    mask = "<mask>" if "roberta" in model_type else "[MASK]"
    (found,) = fill_mask(model, f"the {mask} sat", top_k=3)
    assert len(found) == 3
    with pytest.raises(UserError, match=f"no {re.escape(mask)} in"):
        fill_mask(model, "the cat sat")


def test_inputs_that_a_class_does_not_take_are_not_asked_for(tmp_path: Path) -> None:
    for model_type, has_segments in (("distilbert", False), ("modernbert", False), ("roberta", True)):
        directory = written(tmp_path / model_type, model_type)
        settings = json.loads((directory / "tokenizer_config.json").read_text())
        assert ("token_type_ids" in settings["model_input_names"]) is has_segments
        assert settings["mask_token"] == ("<mask>" if model_type == "roberta" else "[MASK]")


@pytest.mark.parametrize(("segments", "names"), [(1, ["input_ids", "attention_mask"]), (2, None)])
def test_a_class_with_one_segment_is_not_given_the_second_one_of_a_pair(
    tmp_path: Path, segments: int, names: list[str] | None
) -> None:
    directory = tmp_path / "vocabulary"
    directory.mkdir()
    vocabulary = Vocabulary("wordpiece", "uncased", "\n".join(SPECIAL_TOKENS).encode())
    config = small_config("bert", type_vocab_size=segments)
    write_tokenizer(directory, make_tokenizer(vocabulary), vocabulary, config)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "BertTokenizer"
    assert settings.get("model_input_names") == names


def test_what_keeps_a_model_from_the_class_of_its_objective_is_named() -> None:
    electra = small_model("electra", ReplacedTokenDetection(), ("encoder",), activation="gelu_tanh")
    with pytest.raises(UserError, match="ElectraForPreTraining has no activation gelu_tanh, only gelu_exact"):
        huggingface.transformers_class(dataclasses.replace(electra, family=""))
