"""Language modelling of held-out text, by the same rules for all models, so that their numbers compare.

Evaluation during pretraining sees the text as the run does, with its own pairs, masks and lengths. Here every
model sees [CLS] text [SEP] of the same documents with the same tokens masked. docs/models.md lists the
metrics, and which of them compare between which models. [CLS] and [SEP] are not predicted; unknown tokens,
whose text is lost, are left out of bits and bytes.
"""

import dataclasses
import math
from pathlib import Path

import numpy as np

from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.token_probabilities import token_log_probabilities
from bert_jax.objectives.language_model import LARGEST_LOSS
from bert_jax.study import HELDOUT_LENGTH
from data_pipeline.checks import check_positive
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.corpus.store import describe
from data_pipeline.errors import UserError
from data_pipeline.pretraining.heldout_text import MAX_DOCUMENTS, HeldoutText, Masked, read_heldout_text

_SHORTEST = 3


@dataclasses.dataclass(frozen=True, eq=False)
class HeldoutScores:
    """What `heldout_language_model` found. D documents."""

    metrics: dict[str, float]
    """Losses in nats, accuracies from 0 to 1; NaN where nothing was predicted."""
    items: dict[str, np.ndarray]
    """Metric -> float64 [D, 2], each document's sum and count. A metric is total sum / total count; a
    perplexity is exp of that."""


def heldout_language_model(
    model: PretrainedModel,
    corpus: str | Path,
    *,
    max_seq_length: int | None = None,
    max_documents: int = MAX_DOCUMENTS,
) -> HeldoutScores:
    """How well a model predicts the held-out documents of a corpus; the module's docstring has the metrics.

    Args:
      model: as returned by `open_model`.
      corpus: made by `bert-jax prepare` with the model's vocabulary and --holdout above 0.
      max_seq_length: tokens of a sequence, special ones counted; None for 128, or the model's positions if it
        has fewer. Models are comparable at one length.
      max_documents: most documents, of which the first 500 words are used.

    Raises:
      UserError: the model has no language model head, no BERT tokenizer, fewer positions or another
        vocabulary; no prepared corpus, or one without held-out documents.
    """
    model.require("language_model", "held-out language modelling")
    _check_vocabulary(model, str(corpus))
    length = _length(model, max_seq_length)
    check_positive("max_documents", max_documents)
    text = read_heldout_text(open_corpus(corpus, "heldout"), length, max_documents)
    direction = {"causal": "ltr", "anticausal": "rtl"}.get(model.config.attention)
    items = _in_one_direction(model, text, direction) if direction else _masked(model, text)
    return HeldoutScores({name: _metric(name, values) for name, values in items.items()}, items)


def _check_vocabulary(model: PretrainedModel, corpus: str) -> None:
    described = describe(corpus)
    if not described.is_prepared:
        raise UserError(f"{corpus} holds TFRecords; held-out text needs a corpus made by `bert-jax prepare`")
    if model.vocabulary is None or described.vocabulary != model.vocabulary:
        raise UserError(
            f"{corpus} has another vocabulary than {model.name}; prepare the text with the model's "
            f"(--vocab MODEL)"
        )


def _length(model: PretrainedModel, wanted: int | None) -> int:
    positions = model.config.max_position_embeddings
    if wanted is None:
        return min(HELDOUT_LENGTH, positions)
    if not _SHORTEST <= wanted <= positions:
        raise UserError(
            f"max_seq_length is {wanted}; {model.name} can be compared from {_SHORTEST} to {positions}"
        )
    return wanted


def _masked(model: PretrainedModel, text: HeldoutText) -> dict[str, np.ndarray]:
    tokens = text.mask_tokens()
    words = text.mask_all(text.is_of_chosen_word)
    items = _of_tokens("mlm", text, *_predict(model, text, tokens), tokens.predicted)
    all_masked = text.mask_all(tokens.predicted)
    items |= _of_tokens("all_mask", text, *_predict(model, text, all_masked), tokens.predicted)
    log_p, _ = _predict(model, text, words)
    return items | {"bits_per_byte": _bits(text, log_p, words.predicted)}


def _in_one_direction(model: PretrainedModel, text: HeldoutText, name: str) -> dict[str, np.ndarray]:
    everything = Masked(text.sequences.input_ids, text.is_text)
    log_p, likeliest = _predict(model, text, everything)
    items = _of_tokens(name, text, log_p, likeliest, text.is_text)
    return items | {f"{name}_bits_per_byte": _bits(text, log_p, text.is_known)}


def _predict(model: PretrainedModel, text: HeldoutText, masked: Masked) -> tuple[np.ndarray, np.ndarray]:
    targets, sizes = text.sequences.input_ids, text.sequences.ends
    return token_log_probabilities(model, masked.input_ids, sizes, targets, masked.predicted)


def _of_tokens(
    name: str, text: HeldoutText, log_p: np.ndarray, likeliest: np.ndarray, predicted: np.ndarray
) -> dict[str, np.ndarray]:
    loss = _by_document(text, -log_p, predicted)
    return {
        f"{name}_loss": loss,
        f"{name}_perplexity": loss,
        f"{name}_accuracy": _by_document(text, likeliest, predicted),
    }


def _bits(text: HeldoutText, log_p: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return _by_document(text, -log_p / math.log(2) * counted, text.num_bytes * counted)


def _by_document(text: HeldoutText, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """float64 [D, 2], the sums of two arrays [N, T] over each document."""
    columns = [
        np.bincount(text.documents, array.sum(axis=1), int(text.documents[-1]) + 1)
        for array in (values, counts)
    ]
    return np.stack(columns, axis=1)


def _metric(name: str, items: np.ndarray) -> float:
    total, count = items.sum(axis=0).tolist()
    ratio = total / count if count else math.nan
    return math.exp(min(ratio, LARGEST_LOSS)) if name.endswith("perplexity") else ratio
