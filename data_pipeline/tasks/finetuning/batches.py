"""Batches of rows: which rows a step has, and their sequences padded to one of a few lengths.

A training batch depends on (rows, seed, step) alone and is computed without replaying earlier steps. A row
has a line of its own, padded to one of a few lengths, or shares a line with other rows (`packing.py`).
Either way there are few shapes, so that a model is compiled few times.
"""

import collections
from collections.abc import Iterator, Sequence

import numpy as np

from data_pipeline.tasks.finetuning.order import rows_of_step
from data_pipeline.tasks.finetuning.packing import Packing, place_rows
from data_pipeline.tasks.finetuning.rows import FEATURES, Rows

NumpyBatch = dict[str, np.ndarray]

_POWERS = range(12)
LENGTHS = tuple(length << power for power in _POWERS for length in (16, 24))
"""16, 24, 32, 48, ..., 49,152."""
_BETWEEN = (8, 12, *(length << power for power in _POWERS for length in (20, 28)))
# For fewer batches than this, more padding costs less than compiling the model for one more shape.
_BATCHES_WORTH_A_LENGTH = 4
NO_TARGET = -1
"""Per-token target of padding, and `row` of padding rows."""

POSITIONS = "_positions"
"""Suffix of the names of targets that are token positions, counted from the beginning of their row."""

_INPUTS = ("input_ids", "segment_ids", FEATURES)


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """Padded lengths for a model of `longest` positions: the `LENGTHS` below that, then `longest` itself."""
    return (*(length for length in LENGTHS if length < longest), longest)


def training_batches(
    rows: Rows,
    *,
    batch_size: int,
    seed: int,
    first_step: int,
    num_steps: int,
    lengths: Sequence[int] = LENGTHS,
    packing: Packing | None = None,
) -> Iterator[NumpyBatch]:
    """The batches of steps first_step, first_step + 1, ..., num_steps - 1; every one is full.

    A batch may span two epochs, so each row comes exactly once per epoch.

    Args:
      rows: at least one.
      seed: from 0 to 2**64 - 1.
      lengths: ascending; a batch is padded to the first one that holds its longest sequence.
      packing: how rows share lines; None gives each row a line of its own.

    Returns:
      dicts of input_ids, input_mask, segment_ids int32 [B, T], or [B, C, T] where rows have C > 1
      sequences; per-token targets of the same shape, -1 in padding; features [B, T, L, D] if rows have them;
      per-row targets [B, ...]; row int32 [B], the number of each row.

      With packing, there are P lines of at most K rows instead of B rows: input_ids, input_mask,
      segment_ids and per-token targets [P, T]; per-row targets [P, K, ...]; row [P, K], -1 for a missing
      row; instance_starts int32 [P, K], or [P, K, C], the column of each sequence's [CLS], 0 for a missing
      sequence. Targets called `..._positions` are columns of the line.

    Raises:
      ValueError: there are no rows, or one is longer than all lengths; raised by the call itself, not at
        the first batch.
    """
    if not len(rows):
        raise ValueError("there are no rows to make batches of")
    tokens = rows.sequence_lengths()
    longest = tokens.max(axis=1)
    _check_lengths(longest, lengths)
    steps = range(first_step, num_steps)
    parts = (rows_of_step(len(rows), batch_size, seed, step) for step in steps)
    if packing is not None:
        sizes = tokens.sum(axis=1)
        _check_lengths(sizes, (packing.length,))
        return (_pack_batch(rows, part, sizes[part], packing) for part in parts)
    width = rows.sequences_per_row
    return (_make_batch(rows, part, batch_size, longest, lengths, width) for part in parts)


def evaluation_batches(rows: Rows, batch_size: int, lengths: Sequence[int] = LENGTHS) -> Iterator[NumpyBatch]:
    """Every row once, sorted by number of sequences and then by length, the largest first.

    So rows of similar shape share a batch. Where enough batches profit, some are padded to lengths between
    the given ones, or have fewer sequences per row than `rows.sequences_per_row`: the power of two that fits
    them. The last batch is filled up with rows of zeros whose `row` is -1. Otherwise keys, shapes and dtypes
    are those of `training_batches` without packing.

    Raises:
      ValueError: a row is longer than all lengths.
    """
    tokens = rows.sequence_lengths()
    longest = tokens.max(axis=1)
    _check_lengths(longest, lengths)
    counts = _count_sequences(tokens)
    order = np.lexsort((-longest, -counts))  # stable; the last key counts first
    parts = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    lengths = _with_those_between([longest[part].max() for part in parts], lengths)
    needed = [int(counts[part].max()) for part in parts]
    useful = _useful_widths(needed, rows.sequences_per_row)
    widths = [next(width for width in useful if width >= count) for count in needed]
    return (
        _make_batch(rows, part, batch_size, longest, lengths, width)
        for part, width in zip(parts, widths, strict=True)
    )


def _count_sequences(tokens: np.ndarray) -> np.ndarray:
    """int64 [R]: each row's number of sequences up to its last that is not empty."""
    return (np.arange(1, tokens.shape[1] + 1) * (tokens > 0)).max(axis=1)


def _useful_widths(needed: Sequence[int], largest: int) -> list[int]:
    """The smaller powers of two that enough batches need, and `largest`: numbers of sequences per row."""
    powers = [1 << exponent for exponent in range(1, largest.bit_length()) if 1 << exponent < largest]
    return _worthwhile([*powers, largest], [largest], needed)


def _check_lengths(longest: np.ndarray, lengths: Sequence[int]) -> None:
    if len(longest) and longest.max() > lengths[-1]:
        raise ValueError(f"row {longest.argmax()} has {longest.max()} tokens; batches have {lengths[-1]}")


def _with_those_between(needed: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """The lengths, and those of `_BETWEEN` that enough batches need."""
    finer = sorted({*lengths, *(length for length in _BETWEEN if length < lengths[-1])})
    return _worthwhile(finer, lengths, needed)


def _worthwhile(sizes: Sequence[int], kept: Sequence[int], needed: Sequence[int]) -> list[int]:
    """Of ascending sizes those that are kept, and those that are the smallest to fit enough batches."""
    fits = collections.Counter(next(size for size in sizes if size >= count) for count in needed)
    return [size for size in sizes if size in kept or fits[size] >= _BATCHES_WORTH_A_LENGTH]


def _make_batch(
    rows: Rows, numbers: np.ndarray, size: int, longest: np.ndarray, lengths: Sequence[int], width: int
) -> NumpyBatch:
    """The rows `numbers`, filled up to `size` rows, with the first `width` sequences of each."""
    needed = longest[numbers].max()
    length = next(length for length in lengths if length >= needed)
    shape = (size, width, length) if rows.sequences_per_row > 1 else (size, length)
    sequences = [number * rows.sequences_per_row + offset for number in numbers for offset in range(width)]
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


def _pack_batch(rows: Rows, numbers: np.ndarray, sizes: np.ndarray, packing: Packing) -> NumpyBatch:
    """The rows `numbers`, which have `sizes` tokens, packed into shared lines."""
    lines, slots, columns = place_rows(sizes, packing)
    num_lines = packing.num_lines(int(lines.max()) + 1)
    width, places = rows.sequences_per_row, (num_lines, packing.max_rows)
    batch = {}
    for name, values in rows.tokens.items():
        shape = (num_lines, packing.length, *values[0].shape[1:])
        batch[name] = np.full(shape, 0 if name in _INPUTS else NO_TARGET, values[0].dtype)
    batch["input_mask"] = np.zeros((num_lines, packing.length), np.int32)
    starts = np.zeros((*places, width), np.int32)
    for number, line, slot, column in zip(numbers, lines, slots, columns, strict=True):
        for offset in range(width):
            sequence = number * width + offset
            end = column + len(rows.tokens["input_ids"][sequence])
            for name, values in rows.tokens.items():
                batch[name][line, column:end] = values[sequence]
            batch["input_mask"][line, column:end] = 1
            starts[line, slot, offset] = column if end > column else 0
            column = end
    batch["instance_starts"] = starts if width > 1 else starts[..., 0]
    for name, targets in rows.targets.items():
        batch[name] = np.zeros((*places, *targets.shape[1:]), targets.dtype)
        batch[name][lines, slots] = targets[numbers]
        if name.endswith(POSITIONS):
            batch[name][lines, slots] += columns.reshape(-1, *(1 for _ in targets.shape[1:])).astype(np.int32)
    batch["row"] = np.full(places, NO_TARGET, np.int32)
    batch["row"][lines, slots] = numbers
    return batch


def _pad(sequences: Sequence[np.ndarray], shape: tuple[int, ...], filler: int) -> np.ndarray:
    """[*shape, ...]: one padded sequence [T_i, ...] per index of the leading axes, of their dtype."""
    of_token = sequences[0].shape[1:]
    padded = np.full((*shape, *of_token), filler, sequences[0].dtype)
    for line, sequence in zip(padded.reshape(-1, shape[-1], *of_token), sequences, strict=False):
        line[: len(sequence)] = sequence
    return padded
