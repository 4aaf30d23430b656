"""The few shapes that texts of any length and number are padded to, so that few programs are compiled."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

_SHORTEST = 16


def padded_lengths(longest: int) -> list[int]:
    """Ascending lengths for a model with `longest` positions: powers of two from 16, then `longest`."""
    powers = itertools.takewhile(lambda n: n < longest, (_SHORTEST << i for i in itertools.count()))
    return [*powers, longest]


def padded_count(count: int) -> int:
    """The smallest power of two that is at least `count`, which is at least 1."""
    return 1 << (count - 1).bit_length()


def batches_by_length(
    sizes: Sequence[int] | np.ndarray, lengths: Sequence[int], num_tokens: int
) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Puts texts of similar length into one batch; there is one shape for each of the lengths.

    Args:
      sizes: number of tokens of each text.
      lengths: ascending; a text is padded to the first one that holds it.
      num_tokens: most tokens of a batch, padding included, unless one text has more.

    Yields:
      int [n], which texts a batch has, and its shape [B, T], where B is at least n.
    """
    padded = np.asarray(lengths)[np.searchsorted(lengths, sizes)]
    for length in np.unique(padded).tolist():
        (texts,) = np.nonzero(padded == length)
        rows = min(max(num_tokens // length, 1), padded_count(len(texts)))
        for start in range(0, len(texts), rows):
            yield texts[start : start + rows], (rows, length)
