"""Guessing masked tokens from an export and from a run's folder."""

import json
import math
import shutil
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.export import export_run
from bert_jax.fill_mask import PretrainedModel, fill_mask, load_model
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in `run` and its export in `model`."""
    folder = tmp_path_factory.mktemp("fill_mask")
    make_run(folder / "run")
    export_run(folder / "run", folder / "model")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> PretrainedModel:
    return load_model(folder / "model")


def test_every_mask_gets_its_likeliest_tokens(model: PretrainedModel) -> None:
    masks = fill_mask(model, "the [MASK] sat on [MASK].", top_k=3)
    assert [len(guesses) for guesses in masks] == [3, 3]
    for guesses in masks:
        shares = [share for _, share in guesses]
        assert shares == sorted(shares, reverse=True)
        assert all(0 < share < 1 for share in shares)
        assert all(model.tokenizer.token_to_id(token) is not None for token, _ in guesses)


def test_rows_without_a_token_are_never_predicted(model: PretrainedModel) -> None:
    bias = model.params["language_model"]["bias"]
    size = model.tokenizer.get_vocab_size()
    assert len(bias) == size + 7
    before = bias.copy()
    bias[size:] = 100.0
    try:
        guesses = fill_mask(model, "the [MASK] sat", top_k=10_000)[0]
    finally:
        bias[:] = before
    assert len(guesses) == size
    assert math.isclose(sum(share for _, share in guesses), 1, abs_tol=1e-5)


def test_a_work_directory_gives_what_its_export_gives(folder: Path, model: PretrainedModel) -> None:
    text = "a [MASK] saw the dog"
    assert fill_mask(load_model(folder / "run"), text) == fill_mask(model, text)


def test_bad_texts_are_refused(model: PretrainedModel) -> None:
    with pytest.raises(UserError, match=r"no \[MASK\] in 'the cat'"):
        fill_mask(model, "the cat")
    with pytest.raises(UserError, match=r"of 33 tokens, .* the model takes 24"):
        fill_mask(model, "[MASK]" + " cat" * 30)


def test_a_left_to_right_model_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "run", objective="ltr")
    with pytest.raises(UserError, match="trained left to right"):
        fill_mask(load_model(tmp_path / "run"), "the [MASK]")


def test_what_is_not_a_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a model: it has no readable config\.json"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="is not a model"):
        load_model(tmp_path / "absent")
    copy = tmp_path / "copy"
    shutil.copytree(folder / "model", copy)
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        load_model(copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}), encoding="utf-8")
    with pytest.raises(UserError, match="model_type 'gpt2'; valid: 'bert'"):
        load_model(copy)


def test_a_model_of_other_sizes_than_its_config_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder / "model", copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    for change, message in (
        ({"intermediate_size": 25}, "config.json asks for"),
        ({"num_hidden_layers": 3}, "has no tensor bert.encoder.layer.2"),
    ):
        (copy / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
        with pytest.raises(UserError, match=message):
            load_model(copy)


def test_command_prints_tables_or_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["fill-mask", "--model", str(folder / "model"), "--top-k", "2"]
    assert main([*flags, "the [MASK] sat", "[MASK] [MASK]"]) == 0
    out = capsys.readouterr().out
    assert "the [MASK] sat" in out
    assert "[MASK] 2" in out
    assert out.count("%") == 2 + 4
    assert main([*flags, "the [MASK]", "no mask"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no [MASK] in 'no mask'" in captured.err
    assert main(flags) == 2
