"""Finds the largest batch that fits in few tries: each compiles the whole step, which takes minutes."""

import math
from collections.abc import Callable, Sequence

from bert_jax.tpu.report import Report

# Batches per device to try are multiples of eight rows, since it lays out arrays in tiles of eight; with
# fewer rows a part of each tile is wasted.
_BATCH_UNITS = (8, 4, 2, 1)
# Largest factor between two tries: small batches add so little memory to the state's that a line through
# them reaches the capacity much too far out.
_LONGEST_STEP = 16


def largest_that_fits(
    compile_batch: Callable[[int], Report | None], capacity: int, accumulation_steps: int
) -> Report | None:
    """The report of the largest batch per device that fits, or None if not even one row does.

    Args:
      compile_batch: rows per device -> report, or None if they do not fit.
      capacity: bytes of a device's memory.
      accumulation_steps: micro-batches, which must divide the batch.
    """
    reports: dict[int, Report] = {}

    def memory(batch_per_chip: int) -> int | None:
        report = compile_batch(batch_per_chip)
        if report is None:
            return None
        reports[batch_per_chip] = report
        return report.memory.total

    unit, *smaller = dict.fromkeys(math.lcm(rows, accumulation_steps) for rows in _BATCH_UNITS)
    return reports.get(largest_batch(memory, capacity, unit, smaller))


def largest_batch(
    memory: Callable[[int], int | None], capacity: int, unit: int, smaller: Sequence[int] = ()
) -> int:
    """The largest multiple of `unit` that fits, or else the first of `smaller` that does, or else 0.

    Memory grows almost linearly, so each try is where the line through the last two batches that fit reaches
    the capacity, or half-way between the bounds if that lies outside of them.

    Args:
      memory: bytes that a batch takes, or None if it does not fit; whatever is smaller than a batch
        that fits must fit too.
      capacity: bytes available.
      unit: what a batch should be a multiple of.
      smaller: batches to try if not even `unit` fits, the largest first.
    """
    points: list[tuple[int, int]] = []
    bad: int | None = None
    while True:
        good = points[-1][0] if points else 0
        if bad is not None and bad - good == 1:
            return good * unit or next((batch for batch in smaller if memory(batch) is not None), 0)
        guess = _where_full(points, capacity)
        if bad is not None and not good < guess < bad:
            guess = (good + bad) // 2
        guess = max(guess, good + 1)
        taken = memory(guess * unit)
        if taken is None:
            bad = guess
        else:
            points.append((guess, taken))


def _where_full(points: list[tuple[int, int]], capacity: int) -> int:
    """Where a line through the last two points reaches the capacity; with fewer points, 1 or 2."""
    if len(points) < 2:
        return len(points) + 1
    (before, less), (last, more) = points[-2:]
    slope = max((more - less) / (last - before), 1.0)
    return min(last + int((capacity - more) / slope), _LONGEST_STEP * last)
