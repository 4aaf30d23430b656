"""Guessing masked tokens from an export and from a run's directory."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.cli.fill_mask import list_guesses
from bert_jax.cli.main import main
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import fill_mask
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import make_run
from tests.bert_jax.unpadded_row import log_probabilities


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in `run` and its export in `model`."""
    directory = tmp_path_factory.mktemp("fill_mask")
    make_run(directory / "run", num_layers=1)
    convert(directory / "run", directory / "model")
    return directory


@pytest.fixture(scope="module")
def model(directory: Path) -> PretrainedModel:
    return open_model(directory / "model")


def test_every_mask_gets_its_likeliest_tokens(model: PretrainedModel) -> None:
    masks = fill_mask(model, "the [MASK] sat on [MASK].", top_k=3)
    assert [len(guesses) for guesses in masks] == [3, 3]
    for guesses in masks:
        shares = [share for _, share in guesses]
        assert shares == sorted(shares, reverse=True)
        assert all(0 < share < 1 for share in shares)
        assert all(model.tokenizer.token_to_id(token) is not None for token, _ in guesses)


def test_guesses_are_the_probabilities_at_their_own_mask(model: PretrainedModel) -> None:
    text = "the [MASK] sat on [MASK]."
    ids = model.tokenizer.encode(text).ids
    columns = np.flatnonzero(np.array(ids) == model.tokenizer.token_to_id("[MASK]"))
    probabilities = np.exp(log_probabilities(model, ids))[:, : model.tokenizer.get_vocab_size()]
    for column, guesses in zip(columns, fill_mask(model, text, top_k=3), strict=True):
        of_tokens = probabilities[column] / probabilities[column].sum()
        assert [share for _, share in guesses] == pytest.approx(np.sort(of_tokens)[:-4:-1], rel=1e-4)
        for token, share in guesses:
            assert share == pytest.approx(of_tokens[model.tokenizer.token_to_id(token)], rel=1e-4)


def test_rows_without_a_token_are_never_predicted(model: PretrainedModel) -> None:
    bias = model.params["language_model"]["bias"]
    size = model.tokenizer.get_vocab_size()
    assert len(bias) == size + 7
    before = bias.copy()
    bias[size:] = 100.0
    try:
        guesses = fill_mask(model, "the [MASK] sat", top_k=size)[0]
    finally:
        bias[:] = before
    assert len(guesses) == size
    assert math.isclose(sum(share for _, share in guesses), 1, abs_tol=1e-5)


@pytest.mark.parametrize(
    ("top_k", "valid"),
    [(0, "at least 1"), (-1, "at least 1"), (10_000, "at most SIZE"), (None, "a whole number")],
)
def test_more_tokens_than_there_are_or_none_are_refused(
    model: PretrainedModel, top_k: Any, valid: str
) -> None:
    valid = valid.replace("SIZE", str(model.tokenizer.get_vocab_size()))
    with pytest.raises(UserError, match=f"top_k is {top_k}; it must be {valid}$"):
        fill_mask(model, "the [MASK] sat", top_k=top_k)


def test_a_work_directory_gives_what_its_export_gives(directory: Path, model: PretrainedModel) -> None:
    text = "a [MASK] saw the dog"
    assert fill_mask(open_model(directory / "run"), text) == fill_mask(model, text)


def test_a_comma_is_told_from_the_commas_between() -> None:
    assert list_guesses([("the", 0.064), (",", 0.026), ('"', 0.01)]) == '"the" 6.4%, "," 2.6%, """ 1.0%'


def test_bad_texts_are_refused(model: PretrainedModel) -> None:
    with pytest.raises(UserError, match=r"no \[MASK\] in 'the cat'"):
        fill_mask(model, "the cat")
    with pytest.raises(UserError, match=r"of 33 tokens, .* the model takes 24"):
        fill_mask(model, "[MASK]" + " cat" * 30)


@pytest.mark.parametrize(
    ("objective", "trained"),
    [
        ("ltr", "left to right"),
        ("rtl", "right to left"),
        ("ltr_rtl", "left to right and right to left, apart"),
    ],
)
def test_a_model_of_one_direction_is_refused(tmp_path: Path, objective: str, trained: str) -> None:
    make_run(tmp_path / "run", objective=objective, num_layers=1)
    with pytest.raises(UserError, match=f"trained {trained}"):
        fill_mask(open_model(tmp_path / "run"), "the [MASK]")


def test_an_encoder_alone_is_refused(model: PretrainedModel) -> None:
    encoder = dataclasses.replace(model, params={"encoder": model.params["encoder"]})
    with pytest.raises(UserError, match="has no language model head, which filling masks needs"):
        fill_mask(encoder, "the [MASK]")


def test_command_prints_a_line_for_each_mask(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["fill-mask", "--model", str(directory / "model"), "--top-k", "2"]
    assert main([*flags, "the [MASK] sat", "[MASK] [MASK]"]) == 0
    out = capsys.readouterr().out
    assert "the [MASK] sat" in out
    assert len(out.splitlines()) == 2 + 3
    assert out.count("%") == 2 + 4
    assert main([*flags, "the [MASK]", "no mask"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no [MASK] in 'no mask'" in captured.err
    assert main([*flags, "caf\udce9 [MASK]"]) == 2
    assert "the text 'caf\\udce9 [MASK]' is not UTF-8" in capsys.readouterr().err
    assert main(flags) == 2
