"""The few shapes that texts of any length and number are padded to, so that few programs are compiled."""

import itertools

_SHORTEST = 16


def padded_lengths(longest: int) -> list[int]:
    """Ascending lengths for a model with `longest` positions: powers of two from 16, then `longest`."""
    powers = itertools.takewhile(lambda n: n < longest, (_SHORTEST << i for i in itertools.count()))
    return [*powers, longest]


def padded_count(count: int) -> int:
    """The smallest power of two that is at least `count`, which is at least 1."""
    return 1 << (count - 1).bit_length()
