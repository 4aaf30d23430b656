"""The largest batch that fits, found by trying: doubling until one does not, then bisection."""

from collections.abc import Callable


def largest_batch(fits: Callable[[int], bool], unit: int) -> int:
    """The largest multiple of `unit` that fits, or 0 if not even `unit` does.

    Args:
      fits: whether a batch fits; whatever is smaller than a batch that fits must fit too.
      unit: what a batch must be a multiple of.
    """
    good, bad = 0, 1
    while fits(bad * unit):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle * unit) else (good, middle)
    return good * unit
