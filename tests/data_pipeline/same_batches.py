"""Whether two lists of batches are the same to the bit, and some rows of a batch."""

import numpy as np


def assert_same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert a[key].dtype == b[key].dtype
            assert a[key].tobytes() == b[key].tobytes(), key


def rows_of(batch, ranges):
    kept = np.concatenate([np.arange(start, stop) for start, stop in ranges])
    return {key: values[kept] for key, values in batch.items()}
