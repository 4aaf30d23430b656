"""Rows of a task that share lines of positions, so that little is computed for padding.

Texts differ in length far more than a short ladder of lengths can follow: padded to its longest, a batch
of short texts is half to two thirds padding. Here several stand one behind the other in a line, and
the model keeps them apart (`bert_jax/model/packed_rows.py`): each is learnt from as if it were alone.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.tasks.order import rows_of_step
from data_pipeline.tasks.rows import Rows

Ints = NDArray[np.int64]

# Beyond the ladder, which ends where the model's positions do; only rows of several sequences are longer.
_LENGTH_STEP = 64
# Positions at which attention costs as much as the rest of a layer: 6 x width, here of a width of 512.
_EQUAL_COST = 3072
# Short of this gain, lines of their own are as good, and their attention needs no mask of pairs.
_WORTH_IT = 0.95
_SAMPLED_STEPS = 64


@dataclasses.dataclass(frozen=True)
class Packing:
    """The shape of packed batches: P lines of `length` positions, where P follows from the batch."""

    length: int
    max_rows: int
    """Most rows in a line."""
    unit: int = 1
    """P is a multiple of it."""
    fewest: int = 1
    """Smallest P. A batch that needs less has empty lines: compiling for it would cost more."""

    def num_lines(self, used: int) -> int:
        """P for a batch that fills `used` lines, in steps that grow with it: there are few shapes."""
        units = math.ceil(max(used, self.fewest) / self.unit)
        step = 1 << max(units.bit_length() - 4, 0)
        return math.ceil(units / step) * step * self.unit


def choose_packing(
    rows: Rows, batch_size: int, lengths: Sequence[int], *, num_steps: int, unit: int, compiling: float
) -> Packing | None:
    """How to pack training batches; None where padding every row computes as little.

    Judged by a sample of batches.

    Args:
      rows: the training set, at least one row.
      lengths: ascending; what a row with a line of its own would be padded to.
      num_steps: that are trained in all: the more there are, the more shapes are worth compiling.
      unit: devices that share a batch x micro-batches, which a batch must divide by.
      compiling: positions that could be trained on in the time of compiling the step for a shape.
    """
    steps = range(min(_SAMPLED_STEPS, math.ceil(len(rows) / batch_size)))
    samples = [rows_of_step(len(rows), batch_size, 0, step) for step in steps]
    sequences = rows.sequence_lengths()
    sizes, longest = sequences.sum(axis=1), sequences.max(axis=1)
    padded = [next(length for length in lengths if length >= longest[rows].max()) for rows in samples]

    length = next((length for length in lengths if length >= sizes.max()), None)
    length = length or math.ceil(sizes.max() / _LENGTH_STEP) * _LENGTH_STEP
    packing = Packing(length, max_rows=max(2, round(2 * length / sizes.mean())), unit=unit)
    used = [1 + int(place_rows(sizes[rows], packing)[0].max()) for rows in samples]

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
    """Of all steps, given the lines and length of some, in what a position costs but for attention; and of
    compiling each shape that comes up."""

    def cost(shape: tuple[int, int]) -> float:
        lines, length = shape
        return lines * length * (1 + length / _EQUAL_COST)

    steps = num_steps * sum(map(cost, shapes)) / len(shapes)
    return steps + compiling * len(set(shapes))


def place_rows(sizes: Ints, packing: Packing) -> tuple[Ints, Ints, Ints]:
    """Line, number within the line, and first column of each of some rows, [B] each.

    The longest first, each into the fullest line that has space for it (best fit decreasing).

    Args:
      sizes: [B], tokens of each; none is longer than a line.
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
