"""Truncation of a pair of texts that is too long, for pretraining and fine-tuning."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def truncated_lengths(a: Ints | int, b: Ints | int, limit: Ints | int) -> tuple[Ints, Ints]:
    """Returns lengths `a` and `b` after cutting one token of the longer (b on a tie) until a + b <= `limit`.

    All int64 of one shape, or single numbers. The closed form of `truncate_seq_pair` in google-research/bert,
    create_pretraining_data.py:392-409, which is in run_classifier.py too.
    """
    half = limit // 2
    return np.minimum(a, np.maximum(limit - b, limit - half)), np.minimum(b, np.maximum(limit - a, half))
