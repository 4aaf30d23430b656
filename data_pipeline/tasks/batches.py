"""Batches of rows: which rows a step has, and their sequences padded to one of a few lengths.

A training batch is a function of (rows, seed, step) and nothing else, found without replaying earlier
steps. Lengths come from a short ladder, so that a model is compiled few times and pads little.
"""

import collections
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from data_pipeline.tasks.rows import Rows

NumpyBatch = dict[str, np.ndarray]

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_BETWEEN = (8, 12, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448)
# Below this many batches, padding them costs less than compiling the model for one more length.
_BATCHES_WORTH_A_LENGTH = 4
NO_TARGET = -1
"""Per-token targets of padding, and `row` of rows that only fill a batch up."""

_INPUTS = ("input_ids", "segment_ids")


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """The ladder for a model of `longest` positions: no batch is padded beyond it."""
    return (*(length for length in LENGTHS if length < longest), longest)


def training_batches(
    rows: Rows,
    *,
    batch_size: int,
    seed: int,
    first_step: int,
    num_steps: int,
    lengths: Sequence[int] = LENGTHS,
) -> Iterator[NumpyBatch]:
    """The batches of steps first_step, first_step + 1, ..., num_steps - 1; every one is full.

    Epochs run on into each other inside a batch, so each row comes once an epoch.

    Args:
      rows: at least one.
      seed: from 0 to 2**64 - 1.
      lengths: ascending; a batch is padded to the first that holds its longest sequence.

    Returns:
      dicts of input_ids, input_mask, segment_ids int32 [B, T], or [B, C, T] where rows have C > 1
      sequences; per-token targets of the same shape, -1 in padding; per-row targets [B, ...]; row int32
      [B], the number of each row.

    Raises:
      ValueError: now, not at the first batch, if there are no rows or one is beyond all lengths.
    """
    if not len(rows):
        raise ValueError("there are no rows to make batches of")
    longest = _longest_sequences(rows)
    _check_lengths(longest, lengths)
    steps = range(first_step, num_steps)
    parts = (rows_of_step(len(rows), batch_size, seed, step) for step in steps)
    return (_make_batch(rows, part, batch_size, longest, lengths) for part in parts)


def evaluation_batches(rows: Rows, batch_size: int, lengths: Sequence[int] = LENGTHS) -> Iterator[NumpyBatch]:
    """Every row once, the longest first, so that rows of like length share a batch.

    Where enough batches profit, they are padded to lengths between the given ones as well. The last batch
    is filled up with rows of zeros whose `row` is -1. Keys, shapes and types are those of
    `training_batches`; the same ValueError.
    """
    longest = _longest_sequences(rows)
    _check_lengths(longest, lengths)
    order = np.argsort(-longest, kind="stable")
    parts = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    lengths = _with_those_between([longest[part].max() for part in parts], lengths)
    return (_make_batch(rows, part, batch_size, longest, lengths) for part in parts)


def rows_of_step(num_rows: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """int64 [B]: the rows of a training step."""
    epochs, places = np.divmod(np.arange(step * batch_size, (step + 1) * batch_size), num_rows)
    return np.concatenate([_order(num_rows, seed, int(e))[places[epochs == e]] for e in np.unique(epochs)])


@functools.lru_cache(maxsize=4)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    """int64 [R]: the rows in the order of an epoch.

    Sorting raw words, since numpy promises the same raw words for ever but not the same `permutation`.
    """
    words = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(num_rows)
    order = np.argsort(words, kind="stable")
    order.flags.writeable = False
    return order


def _longest_sequences(rows: Rows) -> np.ndarray:
    """int64 [R]: tokens of the longest sequence of each row."""
    lengths = np.array([len(ids) for ids in rows.tokens["input_ids"]], np.int64)
    return lengths.reshape(len(rows), rows.sequences_per_row).max(axis=1)


def _check_lengths(longest: np.ndarray, lengths: Sequence[int]) -> None:
    if len(longest) and longest.max() > lengths[-1]:
        raise ValueError(f"row {longest.argmax()} has {longest.max()} tokens; batches have {lengths[-1]}")


def _with_those_between(needed: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """The lengths, and those between them that enough batches fit."""
    finer = sorted({*lengths, *(length for length in _BETWEEN if length < lengths[-1])})
    fits = collections.Counter(next(length for length in finer if length >= tokens) for tokens in needed)
    return [length for length in finer if length in lengths or fits[length] >= _BATCHES_WORTH_A_LENGTH]


def _make_batch(
    rows: Rows, numbers: np.ndarray, size: int, longest: np.ndarray, lengths: Sequence[int]
) -> NumpyBatch:
    """The rows `numbers`, filled up to `size` rows."""
    needed = longest[numbers].max()
    length = next(length for length in lengths if length >= needed)
    width = rows.sequences_per_row
    shape = (size, width, length) if width > 1 else (size, length)
    sequences = [number * width + offset for number in numbers for offset in range(width)]
    ones = [np.ones(len(rows.tokens["input_ids"][s]), np.int32) for s in sequences]
    batch = {"input_mask": _pad(ones, shape, 0)}
    for name, values in rows.tokens.items():
        filler = 0 if name in _INPUTS else NO_TARGET
        batch[name] = _pad([values[s] for s in sequences], shape, filler)
    for name, targets in rows.targets.items():
        batch[name] = np.zeros((size, *targets.shape[1:]), targets.dtype)
        batch[name][: len(numbers)] = targets[numbers]
    batch["row"] = np.full(size, NO_TARGET, np.int32)
    batch["row"][: len(numbers)] = numbers
    return batch


def _pad(sequences: Sequence[np.ndarray], shape: tuple[int, ...], filler: int) -> np.ndarray:
    """int32 of `shape`, a sequence after the other along its last axis."""
    padded = np.full(shape, filler, np.int32)
    for line, sequence in zip(padded.reshape(-1, shape[-1]), sequences, strict=False):
        line[: len(sequence)] = sequence
    return padded
