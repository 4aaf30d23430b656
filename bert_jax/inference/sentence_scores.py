"""How likely a language model finds sentences.

A model that reads in one direction gives the log-likelihood of a sentence. A masked one gives its
pseudo-log-likelihood (PLL; Salazar et al. 2020, arXiv 1910.14659): the sum of each token's log-probability
given all the others. This overrates words of several pieces, which give one another away, so PLL-word-l2r
(Kauf and Ivanova 2023, arXiv 2305.10588) also masks the rest of a token's word to its right.

Shapes: n sentences.
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
from bert_jax.inference.token_probabilities import token_log_probabilities
from bert_jax.model_config import DIRECTIONS
from bert_jax.names import SentenceScoring
from data_pipeline.corpus.special_tokens import special_tokens
from data_pipeline.errors import UserError

# Sentences are padded to a multiple of this: finer than powers of two, since padding would be a third.
_LENGTH_STEP = 4
# A sentence has a row of ids for each of its tokens; so many of these are held at once.
_IDS_AT_ONCE = 1 << 22


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
    different = list(unique.values())
    # Equal for all parts, as the programs of all lengths below it are then.
    longest = -(-max(map(len, different)) // _LENGTH_STEP) * _LENGTH_STEP
    longest = min(longest, model.config.max_position_embeddings)
    count = max(_IDS_AT_ONCE // longest**2, 1)
    model = dataclasses.replace(model, params=jax.device_put(model.params))
    parts = [different[i : i + count] for i in range(0, len(different), count)]
    scores = np.concatenate([_score(model, part, scoring, longest) for part in parts])
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


def _score(
    model: PretrainedModel, encodings: list[Encoding], scoring: SentenceScoring, longest: int
) -> np.ndarray:
    spans = [_spans(encoding, scoring) for encoding in encodings]
    # A row of the model's input for each masked token, or whole sentence.
    sentence = np.repeat(np.arange(len(encodings)), [len(of_one) for of_one in spans])
    begins, ends = np.array(list(itertools.chain(*spans))).T[..., None]
    sizes = np.array([len(encoding) for encoding in encodings])
    columns = np.arange(longest)
    ids = np.zeros((len(encodings), longest), np.int32)
    counted = np.zeros(ids.shape, bool)
    for row, encoding in enumerate(encodings):
        ids[row, : sizes[row]] = encoding.ids
        counted[row, : sizes[row]] = np.logical_not(encoding.special_tokens_mask)
    mask = special_id(model.tokenizer, special_tokens(model.tokenizer).mask)
    targets = ids[sentence]
    masked = np.where((begins <= columns) & (columns < ends), mask, targets)
    predicted = counted[sentence] if scoring == "likelihood" else columns == begins
    lengths = [*range(_LENGTH_STEP, longest, _LENGTH_STEP), longest]
    found, _ = token_log_probabilities(model, masked, sizes[sentence], targets, predicted, lengths)
    return np.bincount(sentence, found.sum(axis=1), len(encodings))
