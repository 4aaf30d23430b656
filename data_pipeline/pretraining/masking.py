"""Masked language modelling, drawn anew at each visit (paper, section 3.1).

Works on a whole batch at once. All randomness comes from bits that the caller passes in, so the masks are
a function of the arguments alone. In numpy, whose vectorised sort takes a twentieth of the time of
TensorFlow's top_k.
"""

import numpy as np
from numpy.typing import NDArray

from data_pipeline.config import MaskingConfig, Phase
from data_pipeline.pretraining.pairs import Sequences

Ids = NDArray[np.int32]
Flags = NDArray[np.bool_]
Bits = NDArray[np.uint32]

# The 32-bit draws of an example are, in this order: T sort keys, one per token; P draws that decide how a
# predicted token is replaced; P draws of a random id. Only the three functions below know this order.


def num_mask_draws(phase: Phase) -> int:
    """Number of 32-bit draws for the masks of one example."""
    return phase.max_seq_length + 2 * phase.max_predictions_per_seq


def share_draws(bits: Bits, starts: NDArray[np.int64], slots_before: NDArray[np.int64], phase: Phase) -> Bits:
    """Returns the draws of each of n packed instances, [n, num_mask_draws], out of those of their rows.

    An instance's draws start at its first column and slot, so no two instances of a row use the same draw.

    Args:
      bits: [n, num_mask_draws], the draws of the row that holds each instance.
      starts: [n], the instance's first column.
      slots_before: [n], number of predictions of the instances before it in the row.
    """
    length, slots = phase.max_seq_length, phase.max_predictions_per_seq
    keys = (starts[:, np.newaxis] + np.arange(length)) % length
    actions = length + (slots_before[:, np.newaxis] + np.arange(slots)) % max(slots, 1)
    return np.take_along_axis(bits, np.concatenate([keys, actions, actions + slots], axis=1), axis=1)


def _split_draws(bits: Bits, length: int, slots: int) -> list[Bits]:
    """Keys [b, T], actions [b, P] and random ids [b, P]."""
    return np.split(bits, np.cumsum([length, slots, slots]), axis=1)[:3]


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
    keys, actions, id_draws = _split_draws(bits, length, slots)
    chosen = text_positions(sequences)
    count = prediction_counts(sequences.ends, chosen.sum(axis=1), masking.rate)
    count = np.minimum(count, slots if room is None else room)
    if masking.unit == "whole_word":
        chosen = _choose_words(sequences.input_ids, chosen, keys, count, continues_word)
        count = chosen.sum(axis=1)
    positions, is_used = _choose_positions(keys, chosen, count, slots)
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


def _choose_words(
    input_ids: Ids, candidates: Flags, keys: Bits, room: NDArray[np.int64], continues_word: Flags
) -> Flags:
    """[b, T]: pieces of whole words, drawn in random order and taken where they fit into `room` [b].

    A word never extends over a special token: a continuing piece after one (its beginning was cut
    off) is a word of its own, whereas google-research/bert joins it to the last word before.
    """
    rows, length = candidates.shape
    continues = continues_word[input_ids] & np.roll(candidates, 1, axis=1)
    word = np.maximum(np.cumsum(candidates & ~continues, axis=1) - 1, 0)  # of each candidate
    flat = word + np.arange(rows)[:, np.newaxis] * length
    sizes = np.bincount(flat[candidates], minlength=rows * length).reshape(rows, length)
    order = _columns_of(np.sort(_keys_with_columns(keys, sizes > 0), axis=1)[:, ::-1], length)
    fitting = np.zeros_like(candidates)
    np.put_along_axis(fitting, order, _fill(np.take_along_axis(sizes, order, axis=1), room), axis=1)
    return candidates & np.take_along_axis(fitting, word, axis=1)


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


def _corrupt(
    ids: Ids, actions: Bits, id_draws: Bits, masking: MaskingConfig, mask_id: int, vocab_size: int
) -> Ids:
    """Returns the replacements of `ids` [b, P]: [MASK], the id itself, or a uniformly drawn id."""
    mask_below = np.uint64(round(masking.mask * 2**32))
    same_below = np.uint64(round((masking.mask + masking.same) * 2**32))
    random_ids = ((id_draws.astype(np.uint64) * np.uint64(vocab_size)) >> np.uint64(32)).astype(np.int32)
    return np.where(actions < mask_below, mask_id, np.where(actions < same_below, ids, random_ids))
