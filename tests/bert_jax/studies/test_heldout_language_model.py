"""Held-out language modelling by rules that no run sets, against sums of logs computed one by one."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference import token_probabilities
from bert_jax.studies.heldout_language_model import heldout_language_model
from bert_jax.studies.weighted_metrics import statistic_of
from bert_jax.study import HELDOUT_METRICS
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.errors import UserError
from data_pipeline.pretraining.heldout_text import HeldoutText, read_heldout_text
from tests.bert_jax.small_run import make_run, trainable_params
from tests.bert_jax.unpadded_row import log_probabilities
from tests.data_pipeline.small_corpus import write_corpus

TEXTS = [
    ["The cat sat on the mat.", "Paris is a CITY of caf\u00e9s; naive!"],
    ["a dog saw the \u2603 cat"],
    ["The cats' mat was here, and a dog sat on the mat in the city of Paris.", "was the cat here", "it was"],
    ["1999 was here", *["the cat saw the dog and the dog saw a cat on the mat in Paris"] * 6],
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Work directories of a masked model and of two that read in one direction, of one vocabulary, and a
    corpus."""
    directory = tmp_path_factory.mktemp("heldout")
    _, tokenizer = make_run(directory / "masked", make_params=trainable_params, num_layers=1)
    for objective in ("ltr", "rtl"):
        make_run(directory / objective, objective=objective, make_params=trainable_params, num_layers=1)
    make_run(directory / "sentencepiece", kind="sentencepiece")
    documents = [tokenizer.encode_batch(text) for text in TEXTS]
    write_corpus(directory / "corpus", [documents[:1]], [documents[:2], documents[2:]], tokenizer)
    write_corpus(directory / "all_train", [documents], [], tokenizer)
    return directory


@pytest.fixture(scope="module")
def masked(directory: Path) -> PretrainedModel:
    return open_model(directory / "masked")


@pytest.fixture(scope="module")
def text(directory: Path) -> HeldoutText:
    return read_heldout_text(open_corpus(directory / "corpus", "heldout"), 24)


def by_hand(
    model: PretrainedModel, text: HeldoutText, masked_ids: np.ndarray, predicted: np.ndarray, offset: int = 0
) -> tuple[list[list[float]], list[list[bool]]]:
    """For each document the negative log-probabilities of its tokens, and which of them are guessed."""
    losses: list[list[float]] = [[] for _ in TEXTS]
    right: list[list[bool]] = [[] for _ in TEXTS]
    for row, document in enumerate(text.documents):
        size = text.sequences.ends[row]
        log_p = log_probabilities(model, masked_ids[row, :size])
        for column in np.flatnonzero(predicted[row]):
            target = text.sequences.input_ids[row, column]
            losses[document].append(-log_p[column + offset, target])
            right[document].append(bool(log_p[column + offset].argmax() == target))
    return losses, right


def pairs(values: list[list[float]]) -> np.ndarray:
    return np.array([[sum(of_document), len(of_document)] for of_document in values])


def test_losses_of_a_masked_model_are_sums_of_logs(
    directory: Path, masked: PretrainedModel, text: HeldoutText
) -> None:
    scores = heldout_language_model(masked, directory / "corpus")
    drawn = text.mask_tokens()
    for name, ids in (("mlm", drawn.input_ids), ("all_mask", text.mask_all(drawn.predicted).input_ids)):
        losses, right = by_hand(masked, text, ids, drawn.predicted)
        np.testing.assert_allclose(scores.items[f"{name}_loss"], pairs(losses), atol=1e-4)
        np.testing.assert_array_equal(scores.items[f"{name}_accuracy"], pairs(right))
        flat = np.concatenate(losses)
        assert scores.metrics[f"{name}_loss"] == pytest.approx(flat.mean(), abs=1e-4)
        assert scores.metrics[f"{name}_perplexity"] == pytest.approx(math.exp(flat.mean()), rel=1e-4)
        assert scores.metrics[f"{name}_accuracy"] == np.concatenate(right).mean()
    assert scores.metrics["mlm_loss"] != scores.metrics["all_mask_loss"]
    for name, items in scores.items.items():
        again = statistic_of(name, items)(items[np.newaxis], np.ones((1, len(items))))
        assert again == pytest.approx(scores.metrics[name]), name
    assert tuple(scores.metrics) == HELDOUT_METRICS[:7]


def test_bits_per_byte_are_bits_of_masked_words_over_their_bytes(
    directory: Path, masked: PretrainedModel, text: HeldoutText
) -> None:
    scores = heldout_language_model(masked, directory / "corpus")
    words = text.mask_all(text.is_of_chosen_word)
    losses, _ = by_hand(masked, text, words.input_ids, words.predicted)
    items = scores.items["bits_per_byte"]
    np.testing.assert_allclose(items[:, 0], [sum(loss) / math.log(2) for loss in losses], atol=1e-4)
    tokens = open_corpus(directory / "corpus", "heldout").tokenizer.tokens
    for document in range(len(TEXTS)):
        rows = text.documents == document
        pieces = [tokens[i] for i in text.sequences.input_ids[rows][text.is_of_chosen_word[rows]]]
        assert items[document, 1] == sum(len(piece.removeprefix("##").encode()) for piece in pieces)
    assert items[:, 1].sum() > 5
    assert scores.metrics["bits_per_byte"] == pytest.approx(items[:, 0].sum() / items[:, 1].sum())


@pytest.mark.parametrize(("name", "offset"), [("ltr", -1), ("rtl", 1)])
def test_a_model_of_one_direction_has_its_own_likelihood_under_other_names(
    directory: Path, text: HeldoutText, name: str, offset: int
) -> None:
    model = open_model(directory / name)
    scores = heldout_language_model(model, directory / "corpus")
    kinds = ("loss", "perplexity", "accuracy", "bits_per_byte")
    assert set(scores.metrics) == {f"{name}_{kind}" for kind in kinds}
    assert set(scores.metrics) < set(HELDOUT_METRICS)
    ids = text.sequences.input_ids
    losses, right = by_hand(model, text, ids, text.is_text, offset)
    np.testing.assert_allclose(scores.items[f"{name}_loss"], pairs(losses), atol=1e-4)
    np.testing.assert_array_equal(scores.items[f"{name}_accuracy"], pairs(right))
    known, _ = by_hand(model, text, ids, text.is_known, offset)
    bits = scores.items[f"{name}_bits_per_byte"]
    np.testing.assert_allclose(bits[:, 0], [sum(loss) / math.log(2) for loss in known], atol=1e-4)
    snowman = 1
    assert len(known[snowman]) == len(losses[snowman]) - 1
    assert bits[snowman, 1] == len("adogsawthecat")


def test_models_of_one_vocabulary_see_the_same_masks(
    directory: Path, masked: PretrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(directory / "other_masking", objective="mlm", num_layers=1)
    seen: list[str] = []
    compute: Callable = token_probabilities.log_probabilities

    def spy(config: object, params: object, batch: dict[str, np.ndarray]) -> object:
        seen.append(str({name: array.tolist() for name, array in batch.items()}))
        return compute(config, params, batch)

    monkeypatch.setattr(token_probabilities, "log_probabilities", spy)
    for model in (masked, open_model(directory / "other_masking")):
        heldout_language_model(model, directory / "corpus")
    assert len(seen) >= 2
    assert len(seen) % 2 == 0
    half = len(seen) // 2
    assert sorted(seen[:half]) == sorted(seen[half:])  # several batches are computed at once, in any order


def test_numbers_do_not_depend_on_batches(
    directory: Path, masked: PretrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = heldout_language_model(masked, directory / "corpus").metrics
    monkeypatch.setattr(token_probabilities, "TOKENS_IN_A_BATCH", 24)
    parts = heldout_language_model(masked, directory / "corpus").metrics
    assert whole == pytest.approx(parts, rel=1e-5)


def test_length_and_documents_can_be_chosen(directory: Path, masked: PretrainedModel) -> None:
    scores = heldout_language_model(masked, directory / "corpus", max_seq_length=8, max_documents=2)
    assert scores.items["mlm_loss"].shape == (2, 2)
    all_scores = heldout_language_model(masked, directory / "corpus", max_seq_length=24)
    same = heldout_language_model(masked, directory / "corpus")
    assert all_scores.metrics == same.metrics


@pytest.mark.parametrize(
    ("model", "corpus", "settings", "message"),
    [
        ("masked", "all_train", {}, "has no heldout documents"),
        ("masked", "masked", {}, "masked is not a corpus"),
        ("sentencepiece", "corpus", {}, "corpus has another vocabulary than sentencepiece; prepare the text"),
        ("masked", "corpus", {"max_seq_length": 25}, "max_seq_length is 25; masked .* from 3 to 24"),
        ("masked", "corpus", {"max_seq_length": 2}, "max_seq_length is 2; "),
        ("masked", "corpus", {"max_documents": 0}, "max_documents is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    directory: Path, model: str, corpus: str, settings: dict[str, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        heldout_language_model(open_model(directory / model), directory / corpus, **settings)


def test_a_model_without_a_language_model_head_is_refused(directory: Path, masked: PretrainedModel) -> None:
    encoder = dataclasses.replace(masked, params={"encoder": masked.params["encoder"]})
    with pytest.raises(UserError, match="no language model head, which held-out language modelling needs"):
        heldout_language_model(encoder, directory / "corpus")


def test_evaluate_compares_any_model(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["evaluate", "--data.corpus", str(directory / "corpus"), "--model", str(directory / "masked")]
    before = sorted(directory.rglob("*"))
    assert main(flags) == 0
    out = capsys.readouterr().out
    metrics = heldout_language_model(open_model(directory / "masked"), directory / "corpus").metrics
    assert f"bits_per_byte        {metrics['bits_per_byte']:.4g}\n" in out
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give --workdir DIR for a run's own evaluation, or --model DIR to compare models"),
        (["--workdir", "a", "--model", "b"], "give --workdir DIR for a run's own evaluation, or --model"),
        (["--model", "b"], "--model needs --data.corpus DIR"),
        (["--model", "b", "--data.corpus", "c", "--eval-examples", "3"], "--eval-examples does not go with"),
    ],
)
def test_flags_of_evaluate_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert main(["evaluate", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
