"""Masked language modelling, drawn anew at each visit (paper, section 3.1).

Works on a whole batch at once. All randomness comes from bits that the caller passes in, so the masks are
a function of the arguments alone. In numpy, whose vectorised sort takes a twentieth of the time of
TensorFlow's top_k.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_pipeline.config import MaskingConfig, MaskingUnit, Phase
from data_pipeline.pretraining.pairs import Sequences

Ids = NDArray[np.int32]
Flags = NDArray[np.bool_]
Bits = NDArray[np.uint32]

SPAN_LENGTHS: Mapping[MaskingUnit, tuple[float, ...]] = {
    "span": tuple(0.2 * 0.8**words for words in range(10)),
    "ngram": (1, 1 / 2, 1 / 3),
}
"""Unit of several words -> weights of the lengths 1, 2, ... words: a geometric distribution that ends at 10
(Joshi et al. 2020, section 3.1), and 1/n (Lan et al. 2020, section 4.1)."""

# The 32-bit draws of an example are, in this order: T sort keys, one per token; with spans, T draws of
# lengths; P draws that decide how a predicted token is replaced; P draws of a random id. Only the four
# functions below know this order.


def num_mask_draws(length: int, slots: int, unit: MaskingUnit) -> int:
    """Number of 32-bit draws for the masks of an example of `length` tokens and `slots` predictions."""
    return _columns_of_draws(unit) * length + 2 * slots


def share_draws(
    bits: Bits, starts: NDArray[np.int64], slots_before: NDArray[np.int64], phase: Phase, unit: MaskingUnit
) -> Bits:
    """Returns the draws of each of n packed instances, [n, num_mask_draws], out of those of their rows.

    An instance's draws start at its first column and slot, so no two instances of a row use the same draw.

    Args:
      bits: [b, num_mask_draws], the draws of the row that holds each instance.
      starts: [n], the instance's first column.
      slots_before: [n], number of predictions of the instances before it in the row.
    """
    length, slots = phase.max_seq_length, phase.max_predictions_per_seq
    columns = (starts[:, np.newaxis] + np.arange(length)) % length
    of_columns = [columns + part * length for part in range(_columns_of_draws(unit))]
    first = len(of_columns) * length
    actions = first + (slots_before[:, np.newaxis] + np.arange(slots)) % max(slots, 1)
    return np.take_along_axis(bits, np.concatenate([*of_columns, actions, actions + slots], axis=1), axis=1)


def _split_draws(bits: Bits, length: int, slots: int, unit: MaskingUnit) -> list[Bits]:
    """Keys [b, T], lengths [b, T], or [b, 0] without spans, actions [b, P] and random ids [b, P]."""
    lengths = (_columns_of_draws(unit) - 1) * length
    return np.split(bits, np.cumsum([length, lengths, slots, slots]), axis=1)[:4]


def _columns_of_draws(unit: MaskingUnit) -> int:
    """Number of draws for each column."""
    return 2 if unit in SPAN_LENGTHS else 1


def mask_sequences(
    sequences: Sequences,
    bits: Bits,
    masking: MaskingConfig,
    max_predictions_per_seq: int,
    continues_word: Flags,
    mask_id: int,
    *,
    room: NDArray[np.int64] | None = None,
) -> dict[str, np.ndarray]:
    """Chooses tokens to predict and corrupts them.

    Args:
      sequences: the text.
      bits: [b, num_mask_draws or more].
      continues_word: [V], whether an id continues the word of the token before it.
      room: [b], most predictions in each row; None: max_predictions_per_seq in every row.

    Returns:
      input_ids int32 [b, T], corrupted; masked_lm_positions int32 [b, P], ascending; masked_lm_ids int32
      [b, P], the original ids there; masked_lm_weights float32 [b, P], 1 for a prediction. Unused slots are
      0 in all three (same as google-research/bert, create_pretraining_data.py:130-150).
    """
    length, slots = sequences.input_ids.shape[1], max_predictions_per_seq
    keys, lengths, actions, id_draws = _split_draws(bits, length, slots, masking.unit)
    chosen = text_positions(sequences)
    count = prediction_counts(sequences.ends, chosen.sum(axis=1), masking.rate)
    count = np.minimum(count, slots if room is None else room)
    if masking.unit != "token":
        words = _find_words(sequences.input_ids, chosen, continues_word)
        order = _columns_of(np.sort(_keys_with_columns(keys, words.sizes > 0), axis=1)[:, ::-1], length)
        if masking.unit in SPAN_LENGTHS:
            order = _span_order(order, _draw_lengths(lengths, masking.unit), words.stretches)
        chosen &= _take_words(words, order, count)
        count = chosen.sum(axis=1)
    positions, is_used = _choose_positions(keys, chosen, count, slots)
    if masking.unit == "span":
        actions = np.take_along_axis(actions, _first_slots(positions), axis=1)
    ids = np.take_along_axis(sequences.input_ids, positions, axis=1)
    corrupted = sequences.input_ids.copy()
    # Unused slots have position 0, and write the id that is there already.
    now = np.where(is_used, _corrupt(ids, actions, id_draws, masking, mask_id, len(continues_word)), ids)
    np.put_along_axis(corrupted, positions, now, axis=1)
    return {
        "input_ids": corrupted,
        "masked_lm_positions": positions,
        "masked_lm_ids": ids * is_used,
        "masked_lm_weights": is_used.astype(np.float32),
    }


def text_positions(sequences: Sequences) -> Flags:
    """[b, T]: True at tokens of the text, False at [CLS], [SEP] and padding."""
    ids = sequences.input_ids
    is_text = np.arange(ids.shape[1], dtype=np.int32) < sequences.ends[:, np.newaxis] - 1
    is_text[:, 0] = False
    # Text never becomes [SEP], which every sequence ends with.
    is_text &= ids != ids[np.arange(len(ids)), sequences.ends - 1][:, np.newaxis]
    return is_text


def prediction_counts(
    ends: NDArray[np.integer], text_tokens: NDArray[np.int64], rate: float
) -> NDArray[np.int64]:
    """[b]: max(1, round(length * rate)), where the length includes special tokens; at most `text_tokens` [b].

    0 if `rate` is 0. Otherwise the same as google-research/bert, create_pretraining_data.py:357-358, before
    the limit by slots.
    """
    if rate == 0:
        return np.zeros(len(ends), np.int64)
    rounded = np.round(ends * rate).astype(np.int64)  # half to even, like Python's round
    return np.minimum(np.maximum(rounded, 1), text_tokens)


def _choose_positions(
    keys: Bits, candidates: Flags, count: NDArray[np.int64], slots: int
) -> tuple[Ids, Flags]:
    """Draws `count` [b] candidates uniformly: returns positions [b, slots], ascending, and which are used."""
    length = keys.shape[1]
    largest = np.sort(_keys_with_columns(keys, candidates), axis=1)[:, ::-1][:, :slots]
    is_used = np.arange(slots) < count[:, np.newaxis]
    positions = np.where(is_used, _columns_of(largest, length), length)
    positions.sort(axis=1)
    return np.where(is_used, positions, 0).astype(np.int32), is_used


def _keys_with_columns(keys: Bits, allowed: Flags) -> Bits:
    """Puts the column into the low bits of each key, so that sorting keeps it; allowed keys sort highest."""
    low = np.uint32((1 << _column_bits(keys.shape[1])) - 1)
    high = np.where(allowed, keys >> np.uint32(1) | np.uint32(1 << 31), np.uint32(0))
    return high & ~low | np.arange(keys.shape[1], dtype=np.uint32)


def _columns_of(keys: Bits, columns: int) -> NDArray[np.int32]:
    return (keys & np.uint32((1 << _column_bits(columns)) - 1)).astype(np.int32)


def _column_bits(columns: int) -> int:
    return (columns - 1).bit_length()


class _Words(NamedTuple):
    """The words of each row, numbered from 0."""

    of_tokens: NDArray[np.int64]
    """[b, T], the number of the word that a token of the text is part of."""
    sizes: NDArray[np.int64]
    """[b, W], tokens of each word; 0 after the last one. W is T."""
    stretches: NDArray[np.int64]
    """[b, W], the same for words that no special token separates."""


def _find_words(input_ids: Ids, is_text: Flags, continues_word: Flags) -> _Words:
    """Words never extend over a special token: a continuing piece after one (its beginning was cut off) is a
    word of its own, whereas google-research/bert joins it to the last word before.
    """
    rows, length = is_text.shape
    continues = continues_word[input_ids] & np.roll(is_text, 1, axis=1)
    words = np.maximum(np.cumsum(is_text & ~continues, axis=1) - 1, 0)
    flat = (words + np.arange(rows)[:, np.newaxis] * length)[is_text]
    sizes = np.bincount(flat, minlength=rows * length).reshape(rows, length)
    stretches = np.zeros(rows * length, np.int64)
    stretches[flat] = np.cumsum(~is_text, axis=1)[is_text]
    return _Words(words, sizes, stretches.reshape(rows, length))


def _draw_lengths(draws: Bits, unit: MaskingUnit) -> NDArray[np.int64]:
    """[b, W]: number of words of the span that begins at each word, as its unit distributes them."""
    sums = np.cumsum(SPAN_LENGTHS[unit])
    return 1 + np.searchsorted(sums[:-1] / sums[-1] * 2**32, draws, side="right")


def _span_order(
    order: NDArray[np.int32], lengths: NDArray[np.int64], stretches: NDArray[np.int64]
) -> NDArray[np.int32]:
    """[b, W]: words in the order in which spans reach them, which begin at the words of `order` in turn.

    A span takes its words from left to right, and ends before a special token.
    """
    columns = order.shape[1]
    begins = np.empty_like(order)
    np.put_along_axis(begins, order, np.arange(columns, dtype=order.dtype)[np.newaxis], axis=1)
    reached = begins.copy()
    for further in range(1, lengths.max(initial=1)):
        reaches = (lengths[:, :-further] > further) & (stretches[:, :-further] == stretches[:, further:])
        later = np.where(reaches, begins[:, :-further], columns)
        reached[:, further:] = np.minimum(reached[:, further:], later)
    keys = reached.astype(np.uint32) << np.uint32(_column_bits(columns))
    return _columns_of(np.sort(keys | np.arange(columns, dtype=np.uint32), axis=1), columns)


def _take_words(words: _Words, order: NDArray[np.int32], room: NDArray[np.int64]) -> Flags:
    """[b, T]: the tokens of the words that fit into `room` [b] if they are taken in their order."""
    fitting = np.zeros(words.sizes.shape, bool)
    taken = _fill(np.take_along_axis(words.sizes, order, axis=1), room)
    np.put_along_axis(fitting, order, taken, axis=1)
    return np.take_along_axis(fitting, words.of_tokens, axis=1)


def _fill(sizes: NDArray[np.int64], room: NDArray[np.int64]) -> Flags:
    """[b, W]: which words are taken, in order, skipping each that is larger than the room that is left.

    A word that is larger than the room now will never fit. So each round drops those and takes all further
    words up to the first that does not fit, at once; a few rounds replace the loop over words.
    """
    taken = np.zeros(sizes.shape, bool)
    while True:
        left = (room - np.where(taken, sizes, 0).sum(axis=1))[:, np.newaxis]
        is_open = ~taken & (sizes > 0) & (sizes <= left)
        if not is_open.any():
            return taken
        taken |= is_open & (np.cumsum(np.where(is_open, sizes, 0), axis=1) <= left)


def _first_slots(positions: Ids) -> NDArray[np.int64]:
    """[b, P]: for each slot, the first one of its run of adjacent positions."""
    slots = np.arange(positions.shape[1])
    is_first = np.diff(positions, axis=1, prepend=-2) != 1
    return np.maximum.accumulate(np.where(is_first, slots, 0), axis=1)


def _corrupt(
    ids: Ids, actions: Bits, id_draws: Bits, masking: MaskingConfig, mask_id: int, vocab_size: int
) -> Ids:
    """Returns the replacements of `ids` [b, P]: [MASK], the id itself, or a uniformly drawn id."""
    mask_below = np.uint64(round(masking.mask * 2**32))
    same_below = np.uint64(round((masking.mask + masking.same) * 2**32))
    random_ids = ((id_draws.astype(np.uint64) * np.uint64(vocab_size)) >> np.uint64(32)).astype(np.int32)
    return np.where(actions < mask_below, mask_id, np.where(actions < same_below, ids, random_ids))
