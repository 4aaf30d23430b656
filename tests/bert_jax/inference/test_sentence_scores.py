"""Scores of sentences, and the command that compares pairs of them."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.sentence_scores import default_scoring, sentence_scores
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.model_config import ModelConfig
from bert_jax.names import SentenceScoring
from data_pipeline.errors import UserError
from tests.bert_jax.small_run import make_run, trainable_params
from tests.bert_jax.unpadded_row import log_probabilities, unpadded_row

# "cats" has two pieces, "xyz" three; lengths with [CLS] and [SEP] are 6 to 18 tokens.
SENTENCES = [
    "the cats sat",
    "a dog saw the cats",
    "xyz was here",
    "the xyz saw a cat on the mat, here was xyz",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Work directories of a masked model and of two that read in one direction."""
    directory = tmp_path_factory.mktemp("sentence_scores")
    make_run(directory / "masked", make_params=trainable_params, num_layers=1)
    for objective in ("ltr", "rtl"):
        make_run(directory / objective, objective=objective, make_params=trainable_params, num_layers=1)
    return directory


@pytest.fixture(scope="module")
def masked(directory: Path) -> PretrainedModel:
    return open_model(directory / "masked")


@pytest.fixture(scope="module")
def ltr(directory: Path) -> PretrainedModel:
    return open_model(directory / "ltr")


def log_probability(model: PretrainedModel, ids: list[int], column: int, masked_until: int) -> float:
    """Of one token, in a row of its own without padding."""
    hidden = [*ids]
    hidden[column:masked_until] = [model.tokenizer.token_to_id("[MASK]")] * (masked_until - column)
    batch = {**unpadded_row(hidden), "masked_lm_positions": jnp.array([[column]])}
    return float(predict(model.config, model.params, batch)[ids[column]])


@functools.partial(jax.jit, static_argnums=0)
def predict(config: ModelConfig, params: dict, batch: dict[str, jax.Array]) -> jax.Array:
    logits, _ = BertForPreTraining(config).apply({"params": params}, batch, True)
    return jax.nn.log_softmax(logits[0, 0])


def by_hand(model: PretrainedModel, sentence: str, scoring: SentenceScoring) -> float:
    encoding = model.tokenizer.encode(sentence)
    total = 0.0
    for column in range(1, len(encoding.ids) - 1):
        end = column + 1
        while scoring == "pll_word_l2r" and encoding.tokens[end].startswith("##"):
            end += 1
        total += log_probability(model, encoding.ids, column, end)
    return total


@pytest.mark.parametrize("scoring", ["pll", "pll_word_l2r"])
def test_scores_of_a_masked_model_are_sums_of_logs(masked: PretrainedModel, scoring: SentenceScoring) -> None:
    expected = [by_hand(masked, sentence, scoring) for sentence in SENTENCES]
    np.testing.assert_allclose(sentence_scores(masked, SENTENCES, scoring), expected, atol=1e-4)


def test_the_rest_of_a_word_is_masked_in_one_scoring_only(masked: PretrainedModel) -> None:
    whole_words, in_pieces = "a dog saw the cat", "the cats sat"
    plain, l2r = (sentence_scores(masked, [whole_words, in_pieces], s) for s in ("pll", "pll_word_l2r"))
    assert plain[0] == pytest.approx(l2r[0], abs=1e-5)
    assert abs(plain[1] - l2r[1]) > 1e-3


@pytest.mark.parametrize(("objective", "predicts_from"), [("ltr", -1), ("rtl", 1)])
def test_scores_of_a_model_of_one_direction_are_log_likelihoods(
    directory: Path, objective: str, predicts_from: int
) -> None:
    model = open_model(directory / objective)
    expected = []
    for sentence in SENTENCES:
        ids = model.tokenizer.encode(sentence).ids
        by_column = log_probabilities(model, ids)
        # [CLS] and [SEP] are not counted.
        scores = (float(by_column[i + predicts_from, ids[i]]) for i in range(1, len(ids) - 1))
        expected.append(sum(scores))
    np.testing.assert_allclose(sentence_scores(model, SENTENCES, "likelihood"), expected, atol=1e-4)


def test_scores_do_not_depend_on_batches(masked: PretrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    many = SENTENCES * 3
    together = sentence_scores(masked, many, "pll")
    assert together[:4].tolist() == together[4:8].tolist()
    monkeypatch.setattr("bert_jax.inference.token_probabilities.TOKENS_IN_A_BATCH", 24)
    np.testing.assert_allclose(sentence_scores(masked, many, "pll"), together, atol=1e-5)
    monkeypatch.setattr("bert_jax.inference.sentence_scores._IDS_AT_ONCE", 1)
    np.testing.assert_allclose(sentence_scores(masked, many, "pll"), together, atol=1e-5)


def test_sentences_of_all_positions_are_scored(masked: PretrainedModel) -> None:
    assert masked.config.max_position_embeddings == 24
    longest = "cat " * 22
    assert sentence_scores(masked, [longest], "pll")[0] == pytest.approx(
        by_hand(masked, longest, "pll"), abs=1e-4
    )
    with pytest.raises(UserError, match=r"a text of 25 tokens, .* is too long; the model takes 24"):
        sentence_scores(masked, ["a cat", "cat " * 23], "pll")


def test_models_and_sentences_that_cannot_be_scored_are_refused(
    masked: PretrainedModel, ltr: PretrainedModel
) -> None:
    assert (default_scoring(masked), default_scoring(ltr)) == ("pll", "likelihood")
    with pytest.raises(UserError, match="trained with masks; its scoring is pll or pll_word_l2r, not likeli"):
        sentence_scores(masked, SENTENCES, "likelihood")
    with pytest.raises(UserError, match="trained left to right; its scoring is likelihood, not pll"):
        sentence_scores(ltr, SENTENCES, "pll")
    with pytest.raises(UserError, match="finds no token in ' '"):
        sentence_scores(masked, ["a", " "], "pll")
    encoder = dataclasses.replace(masked, params={"encoder": masked.params["encoder"]})
    with pytest.raises(UserError, match="has no language model head, which scoring sentences needs"):
        sentence_scores(encoder, SENTENCES, "pll")


def pair(good: str, bad: str, **more: str) -> str:
    return json.dumps({"sentence_good": good, "sentence_bad": bad, **more}) + "\n"


def arguments(directory: Path, data: Path, output: Path) -> list[str]:
    flags = ["--model", str(directory / "masked"), "--data", str(data), "--output", str(output)]
    return ["minimal-pairs", *flags]


def test_command_writes_every_score_and_a_summary(
    directory: Path, masked: PretrainedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = tmp_path / "data", tmp_path / "new" / "out"
    data.mkdir()
    (data / "b.jsonl").write_text(pair("the cats sat", "cats the sat", linguistics_term="order"))
    (data / "a.jsonl").write_text(pair("a dog saw", "saw a dog") + pair("a cat", "A CAT"))
    assert main(arguments(directory, data, output)) == 0
    rows = [json.loads(line) for line in (output / "pairs.jsonl").read_text().splitlines()]
    good, bad = (sentence_scores(masked, [row[name] for row in rows], "pll") for name in ("good", "bad"))
    np.testing.assert_allclose([row["score_good"] for row in rows], good, atol=1e-5)
    np.testing.assert_allclose([row["score_bad"] for row in rows], bad, atol=1e-5)
    assert [row["correct"] for row in rows] == (good > bad).tolist()
    first, tie, last = ((good > bad) * 1.0).tolist()
    assert tie == 0
    assert json.loads((output / "summary.json").read_text()) == {
        "model": "masked",
        "scoring": "pll",
        "accuracy": (first / 2 + last) / 2,
        "phenomena": {"order": last},
        "paradigms": {"a": first / 2, "b": last},
        "pairs": 3,
        "ties": 1,
    }
    assert sorted(path.name for path in output.iterdir()) == ["pairs.jsonl", "summary.json"]
    assert "the mean of 2 paradigms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (pair("a", "b") + '{"sentence_good": "a"}\n', "line 2 has no column sentence_bad"),
        (pair("a", " "), "line 1: sentence_bad is empty"),
        (pair("a", "cat " * 30), "a text of 32 tokens, [CLS] and [SEP] counted, is too long"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    data = tmp_path / "pairs.jsonl"
    data.write_text(content)
    assert main(arguments(directory, data, tmp_path / "new" / "out")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == [data]


def test_an_output_that_exists_is_left_alone(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.jsonl").write_text(pair("a", "cat"))
    assert main(arguments(directory, tmp_path / "pairs.jsonl", tmp_path)) == 2
    assert "exists" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1
