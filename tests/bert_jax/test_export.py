"""Exports: whole or absent, the same numbers after reading back, the same ids as the run's tokenizer."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from bert_jax.checkpoints import load_params
from bert_jax.cli.main import main
from bert_jax.config import ModelConfig
from bert_jax.export import export_run
from bert_jax.huggingface import abstract_params, from_config, from_tensors, to_config, to_tensors
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import TEXTS, make_experiment, make_run, random_params

FILES = {
    "README.md",
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.mark.parametrize("casing", ["cased", "uncased"])
@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_export_is_whole_and_tokenises_as_the_run_did(tmp_path: Path, kind: str, casing: str) -> None:
    experiment, tokenizer = make_run(tmp_path / "run", kind=kind, casing=casing)
    output = export_run(tmp_path / "run", tmp_path / "deep" / "model")
    vocabulary = "vocab.txt" if kind == "wordpiece" else "spiece.model"
    assert {path.name for path in output.iterdir()} == {*FILES, vocabulary}
    assert [path.name for path in output.parent.iterdir()] == ["model"]
    exported = Tokenizer.from_file(str(output / "tokenizer.json"))
    for text in TEXTS:
        ids = exported.encode(text).ids
        assert ids == [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id], text
    assert tokenizer.mask_id in exported.encode("the [MASK] sat").ids
    assert from_config(json.loads((output / "config.json").read_text())) == experiment.model
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "| steps | 10 of 10 |" in card
    assert "| held-out mlm_accuracy | 0.25 |" in card


def test_reading_back_gives_the_same_parameters(tmp_path: Path) -> None:
    experiment, _ = make_run(tmp_path / "run")
    output = export_run(tmp_path / "run", tmp_path / "model", step=10)
    _, params = load_params(tmp_path / "run")
    read = from_tensors(load_file(output / "model.safetensors"), experiment.model)
    jax.tree.map(np.testing.assert_array_equal, read, params)


def test_every_parameter_has_one_name() -> None:
    model = make_experiment("mlm_nsp", 50).model
    tensors = to_tensors(random_params(model), model)
    assert len(tensors) == len(flatten_dict(abstract_params(model)))
    assert tensors["bert.encoder.layer.1.attention.self.query.weight"].shape == (16, 16)
    assert tensors["bert.encoder.layer.0.intermediate.dense.weight"].shape == (24, 16)


def test_linear_layers_are_transposed_and_heads_joined() -> None:
    model = make_experiment("mlm_nsp", 50).model
    params = random_params(model)
    tensors = to_tensors(params, model)
    layer = params["encoder"]["layer_1"]
    x = np.random.default_rng(0).normal(size=16)
    by_heads = np.einsum("d,dnk->nk", x, layer["attention"]["key"]["kernel"]).reshape(-1)
    np.testing.assert_allclose(tensors["bert.encoder.layer.1.attention.self.key.weight"] @ x, by_heads)
    joined = np.einsum("nk,nkd->d", x.reshape(4, 4), layer["attention"]["output"]["kernel"])
    np.testing.assert_allclose(tensors["bert.encoder.layer.1.attention.output.dense.weight"] @ x, joined)


def test_a_left_to_right_model_is_a_decoder_without_the_other_heads() -> None:
    model = make_experiment("ltr", 50).model
    config = to_config(model, pad_token_id=0)
    assert config["architectures"] == ["BertLMHeadModel"]
    assert config["is_decoder"]
    assert from_config(config) == model
    names = to_tensors(random_params(model), model)
    assert not [name for name in names if "pooler" in name or "seq_relationship" in name]


def test_config_names_each_activation() -> None:
    for activation, theirs in (("gelu_exact", "gelu"), ("gelu_tanh", "gelu_pytorch_tanh")):
        config = to_config(ModelConfig(activation=activation), pad_token_id=3)
        assert (config["hidden_act"], config["pad_token_id"]) == (theirs, 3)


def test_an_existing_output_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UserError, match="model exists; name a folder that does not"):
        export_run(tmp_path / "run", tmp_path / "model")


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    lines = (tmp_path / "run" / "tokenizer" / "vocab.txt").read_text(encoding="utf-8")
    more = lines + "".join(f"word{i}\n" for i in range(8))
    (tmp_path / "run" / "tokenizer" / "vocab.txt").write_text(more, encoding="utf-8")
    with pytest.raises(UserError, match="not the one that the run was trained with"):
        export_run(tmp_path / "run", tmp_path / "out" / "model")
    assert list((tmp_path / "out").iterdir()) == []


def test_bad_input_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run")
    empty = tmp_path / "empty"
    empty.mkdir()
    for flags, message in (
        (["--workdir", str(empty)], "is not the work directory of a run"),
        (["--workdir", str(tmp_path / "run"), "--step", "7"], "has no checkpoint of step 7; there are [10]"),
        (["--workdir", str(tmp_path / "run"), "--stepp", "7"], "nearest: --step"),
    ):
        assert main(["export", *flags, "--output", str(tmp_path / "model")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    (tmp_path / "run" / "tokenizer").rename(tmp_path / "elsewhere")
    assert main(["export", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "model")]) == 2
    assert "no tokenizer of this run" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
