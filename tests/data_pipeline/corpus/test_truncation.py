"""Truncation: the closed form against a literal loop."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.corpus.truncation import truncated_lengths


def cut_literally(a: int, b: int, limit: int) -> tuple[int, int]:
    while a + b > limit:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@settings(max_examples=500, deadline=None)
@given(a=st.integers(0, 300), b=st.integers(0, 300), limit=st.integers(0, 300))
def test_truncation_is_that_of_a_literal_loop(a, b, limit):
    left = cut_literally(a, b, limit)
    assert truncated_lengths(a, b, limit) == left
    of_arrays = truncated_lengths(np.array([a, 1]), np.array([b, 1]), np.array([limit, 1]))
    np.testing.assert_array_equal(of_arrays, [[left[0], 1], [left[1], 0]])
