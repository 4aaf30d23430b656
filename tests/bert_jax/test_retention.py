"""Which checkpoints stay."""

import pytest

from bert_jax.retention import Kept


def test_the_newest_and_those_of_every_series_stay() -> None:
    steps = (70, 10, 20, 30, 40, 50, 60, 65)
    assert Kept(2, (20, 30)).of(steps) == [20, 30, 40, 60, 65, 70]
    assert Kept(3).of(steps) == [60, 65, 70]
    assert Kept(3).of([10]) == [10]


@pytest.mark.parametrize("numbers", [{"newest": 0}, {"newest": 3, "every": (0,)}])
def test_numbers_below_one_are_refused(numbers: dict) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Kept(**numbers)
