"""Whether tensors by name are the same, byte by byte."""

from collections.abc import Mapping

import numpy as np


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert set(found) == set(expected), set(found) ^ set(expected)
    different = [name for name, array in expected.items() if found[name].tobytes() != array.tobytes()]
    assert not different, different
