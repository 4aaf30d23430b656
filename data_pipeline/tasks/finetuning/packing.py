"""Packs several rows of a task into one line of positions, so that little is computed for padding.

Texts differ in length far more than a few padded lengths can follow: padded to its longest, a batch of
short texts is half to two thirds padding. Here several rows follow one another in a line, and the model
keeps them apart (`bert_jax/model/packed_rows.py`), so each is trained on as if it were alone.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.tasks.finetuning.order import rows_of_step
from data_pipeline.tasks.finetuning.rows import Rows

Ints = NDArray[np.int64]

# Line lengths beyond the given ones, which end at the model's number of positions, are multiples of this.
# Only rows of several sequences can be longer.
_LENGTH_STEP = 64
# Length at which attention costs as much as the rest of a layer: 6 x width, here for a width of 512.
_EQUAL_COST = 3072
# Packing must cost at most this fraction of padding; otherwise padding wins, as it needs no pairwise mask.
_WORTH_IT = 0.95
_SAMPLED_STEPS = 64


@dataclasses.dataclass(frozen=True)
class Packing:
    """The shape of packed batches: P lines of `length` positions, where P depends on the batch."""

    length: int
    max_rows: int
    """Most rows in a line."""
    unit: int = 1
    """Divisor of P."""
    fewest: int = 1
    """Smallest P. A batch that needs fewer lines gets empty ones, which cost less than compiling for it."""

    def num_lines(self, used: int) -> int:
        """P for a batch that fills `used` lines, rounded up in steps that grow with it, so shapes are few."""
        units = math.ceil(max(used, self.fewest) / self.unit)
        step = 1 << max(units.bit_length() - 4, 0)
        return math.ceil(units / step) * step * self.unit


def choose_packing(
    rows: Rows, batch_size: int, lengths: Sequence[int], *, num_steps: int, unit: int, compiling: float
) -> Packing | None:
    """How to pack training batches; None where padding every row costs about as little.

    The costs are estimated from a sample of batches.

    Args:
      rows: the training set, at least one row.
      lengths: ascending; the lengths that unpacked batches would be padded to.
      num_steps: training steps in all; the more there are, the more shapes are worth compiling.
      unit: devices that share a batch x micro-batches; the number of lines must be a multiple of it.
      compiling: positions that could be trained on in the time it takes to compile the step for one shape.
    """
    steps = range(min(_SAMPLED_STEPS, math.ceil(len(rows) / batch_size)))
    samples = [rows_of_step(len(rows), batch_size, 0, step) for step in steps]
    sequences = rows.sequence_lengths()
    sizes, longest = sequences.sum(axis=1), sequences.max(axis=1)
    padded = [next(length for length in lengths if length >= longest[part].max()) for part in samples]

    length = next((length for length in lengths if length >= sizes.max()), None)
    length = length or math.ceil(sizes.max() / _LENGTH_STEP) * _LENGTH_STEP
    packing = Packing(length, max_rows=max(2, round(2 * length / sizes.mean())), unit=unit)
    used = [1 + int(place_rows(sizes[part], packing)[0].max()) for part in samples]

    def packed_cost(fewest: int) -> float:
        counts = map(dataclasses.replace(packing, fewest=fewest).num_lines, used)
        return _cost([(count, length) for count in counts], num_steps, compiling)

    fewest = min(sorted(set(used)), key=packed_cost)
    shapes = [(batch_size * rows.sequences_per_row, length) for length in padded]
    padded_cost = _cost(shapes, num_steps, compiling)
    if packed_cost(fewest) > _WORTH_IT * padded_cost:
        return None
    return dataclasses.replace(packing, fewest=fewest)


def _cost(shapes: Sequence[tuple[int, int]], num_steps: int, compiling: float) -> float:
    """Cost of `num_steps` steps, extrapolated from the (lines, length) of some, and of compiling each shape.

    The unit is the cost of one position without attention.
    """

    def cost(shape: tuple[int, int]) -> float:
        lines, length = shape
        return lines * length * (1 + length / _EQUAL_COST)

    steps = num_steps * sum(map(cost, shapes)) / len(shapes)
    return steps + compiling * len(set(shapes))


def place_rows(sizes: Ints, packing: Packing) -> tuple[Ints, Ints, Ints]:
    """The line, the number within the line, and the first column of each row, int64 [B] each.

    Best fit decreasing: from the longest row down, each goes into the fullest line that has space for it.

    Args:
      sizes: [B], tokens of each row; none is longer than a line.
    """
    lines, numbers, columns = np.zeros((3, len(sizes)), np.int64)
    filled, counts = np.zeros((2, len(sizes)), np.int64)
    for row in np.argsort(-sizes, kind="stable"):
        fits = (filled + sizes[row] <= packing.length) & (counts < packing.max_rows)
        line = np.where(fits, filled, -1).argmax()
        lines[row], numbers[row], columns[row] = line, counts[line], filled[line]
        filled[line] += sizes[row]
        counts[line] += 1
    return lines, numbers, columns
