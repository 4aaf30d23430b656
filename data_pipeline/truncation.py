"""How much stays of two texts that are together too long, in pretraining and in fine-tuning."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def truncated_lengths(a: Ints | int, b: Ints | int, limit: Ints | int) -> tuple[Ints, Ints]:
    """What is left of lengths `a` and `b` after cutting the longer (b on a tie) until both fit `limit`.

    All int64 of one shape, or single numbers. The closed form of `truncate_seq_pair` in google-research/bert,
    create_pretraining_data.py:392-409, which run_classifier.py has as well.
    """
    half = limit // 2
    return np.minimum(a, np.maximum(limit - b, limit - half)), np.minimum(b, np.maximum(limit - a, half))
