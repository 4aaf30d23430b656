"""How likely a language model finds sentences.

A model that reads in one direction gives the log-likelihood of a sentence. A masked one gives its
pseudo-log-likelihood (PLL; Salazar et al. 2020, arXiv 1910.14659): the sum of each token's log-probability
given all the others. This overrates words of several pieces, which give one another away, so PLL-word-l2r
(Kauf and Ivanova 2023, arXiv 2305.10588) also masks the rest of a token's word to its right.

Shapes: n sentences, T columns, B rows of a batch, P predictions of a row.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import numpy as np
from tokenizers import Encoding

from bert_jax.formats.huggingface_tokenizer import special_id
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.fill_mask import check_fits
from bert_jax.inference.padding import batches_by_length
from bert_jax.inference.token_probabilities import TOKENS_IN_A_BATCH, log_probabilities, several_at_once
from bert_jax.model_config import DIRECTIONS, PREDICTS_FROM
from bert_jax.names import SentenceScoring
from data_pipeline.corpus.special_tokens import special_tokens
from data_pipeline.errors import UserError

# Sentences are padded to a multiple of this: finer than powers of two, since padding would be a third.
_LENGTH_STEP = 4


@dataclasses.dataclass(frozen=True, eq=False)
class _Rows:
    """What is to be predicted: a row of the model's input for each masked token or whole sentence."""

    ids: np.ndarray
    """int32 [n, T], padded with 0 to more columns than any batch has."""
    sizes: np.ndarray
    """int [n], tokens of each sentence."""
    counted: np.ndarray
    """bool [n, T], which tokens are scored: not [CLS], [SEP] or padding."""
    sentences: np.ndarray
    """int [rows], of which sentence a row is."""
    spans: np.ndarray
    """int [rows, 2], the first masked column, which is predicted, and the one after the last; equal in rows
    without masks, where every token is predicted."""


def sentence_scores(model: PretrainedModel, sentences: Sequence[str], scoring: SentenceScoring) -> np.ndarray:
    """The scores of sentences, float64 [n], in nats; [CLS] and [SEP] are context and not counted.

    Args:
      model: as returned by `open_model`.
      sentences: each with a token, and short enough for the model.
      scoring: likelihood for a model that reads in one direction, one of the others for a masked one.

    Raises:
      UserError: the model has no language model head, or another attention than `scoring` needs; a sentence
        is too long or has no token.
    """
    _check_scoring(model, scoring)
    encodings = model.tokenizer.encode_batch(list(sentences))
    for sentence, encoding in zip(sentences, encodings, strict=True):
        check_fits(model, sentence, encoding.ids)
        if all(encoding.special_tokens_mask):
            raise UserError(f"the model's tokenizer finds no token in {sentence[:40]!r}")
    # Equal sentences have equal scores, whatever batch they would have been in.
    unique = {tuple(encoding.ids): encoding for encoding in encodings}
    index = {ids: number for number, ids in enumerate(unique)}
    scores = _score(model, _make_rows(list(unique.values()), scoring))
    return scores[[index[tuple(encoding.ids)] for encoding in encodings]]


def default_scoring(model: PretrainedModel) -> SentenceScoring:
    """pll for a masked model, likelihood for one that reads in one direction."""
    return "pll" if model.config.attention == "bidirectional" else "likelihood"


def _check_scoring(model: PretrainedModel, scoring: SentenceScoring) -> None:
    model.require("language_model", "scoring sentences")
    is_masked = model.config.attention == "bidirectional"
    valid = ("pll", "pll_word_l2r") if is_masked else ("likelihood",)
    if scoring not in valid:
        trained = "with masks" if is_masked else DIRECTIONS[model.config.attention]
        raise UserError(
            f"{model.name} was trained {trained}; its scoring is {' or '.join(valid)}, not {scoring}"
        )


def _make_rows(encodings: list[Encoding], scoring: SentenceScoring) -> _Rows:
    sizes = np.array([len(encoding) for encoding in encodings])
    ids = np.zeros((len(encodings), sizes.max() + _LENGTH_STEP), np.int32)
    counted = np.zeros(ids.shape, bool)
    for row, encoding in enumerate(encodings):
        ids[row, : sizes[row]] = encoding.ids
        counted[row, : sizes[row]] = np.logical_not(encoding.special_tokens_mask)
    spans = [_spans(encoding, scoring) for encoding in encodings]
    sentences = np.repeat(np.arange(len(encodings)), [len(of_one) for of_one in spans])
    return _Rows(ids, sizes, counted, sentences, np.array(list(itertools.chain(*spans))))


def _spans(encoding: Encoding, scoring: SentenceScoring) -> list[tuple[int, int]]:
    """The columns to mask in each row of a sentence."""
    if scoring == "likelihood":
        return [(0, 0)]
    words = encoding.word_ids
    ends = {word: column + 1 for column, word in enumerate(words)}  # of several columns the last one stays
    whole = scoring == "pll_word_l2r"
    return [
        (column, ends[words[column]] if whole else column + 1)
        for column, is_special in enumerate(encoding.special_tokens_mask)
        if not is_special
    ]


def _score(model: PretrainedModel, rows: _Rows) -> np.ndarray:
    mask = special_id(model.tokenizer, special_tokens(model.tokenizer).mask)
    params = jax.device_put(model.params)
    scores = np.zeros(len(rows.sizes))
    longest = model.config.max_position_embeddings
    lengths = [*range(_LENGTH_STEP, longest, _LENGTH_STEP), longest]

    def score(plan: tuple[np.ndarray, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        chosen, shape = plan
        batch, counts = _make_batch(rows, chosen, shape, mask, PREDICTS_FROM[model.config.attention])
        found, _ = log_probabilities(model.config, params, batch)
        sums = np.where(counts, np.asarray(found, np.float64), 0).sum(axis=1)
        return rows.sentences[chosen], sums[: len(chosen)]

    batches = batches_by_length(rows.sizes[rows.sentences], lengths, TOKENS_IN_A_BATCH)
    for sentences, sums in several_at_once(score, batches):
        np.add.at(scores, sentences, sums)
    return scores


def _make_batch(
    rows: _Rows, chosen: np.ndarray, shape: tuple[int, int], mask: int, predicts_from: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A batch with int `targets` [B, P] beside the model's inputs, and bool [B, P], which of them count."""
    size, length = shape
    chosen = np.pad(chosen, (0, size - len(chosen)), mode="edge")
    sentences, spans = rows.sentences[chosen], rows.spans[chosen, :, None]
    ids, counted = rows.ids[sentences, :length], rows.counted[sentences, :length]
    columns = np.arange(length)
    if np.array_equal(spans[:, 0], spans[:, 1]):
        predicted = columns[1:] if predicts_from < 0 else columns[:-1]
        positions = np.broadcast_to(predicted + predicts_from, (size, length - 1))
        targets, counts = ids[:, predicted], counted[:, predicted]
    else:
        positions = spans[:, 0]
        targets, counts = np.take_along_axis(ids, positions, axis=1), np.ones((size, 1), bool)
    hidden = (spans[:, 0] <= columns) & (columns < spans[:, 1])
    batch = {
        "input_ids": np.where(hidden, mask, ids),
        "input_mask": columns < rows.sizes[sentences, None],
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": positions,
        "targets": targets,
    }
    return {name: array.astype(np.int32) for name, array in batch.items()}, counts
