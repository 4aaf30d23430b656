"""Batches that are computed at once."""

import threading
import time

import pytest

from bert_jax.inference.token_probabilities import several_at_once


def test_results_come_in_the_order_of_the_items() -> None:
    def compute(item: int) -> int:
        time.sleep(0.01 if item % 3 == 0 else 0.0)
        return item * item

    assert list(several_at_once(compute, range(20))) == [item * item for item in range(20)]


def test_several_are_computed_at_once() -> None:
    both = threading.Barrier(2, timeout=30)
    assert sorted(several_at_once(lambda _: both.wait(), range(2))) == [0, 1]


def test_after_an_error_no_further_item_is_begun() -> None:
    begun = []

    def compute(item: int) -> None:
        begun.append(item)
        time.sleep(0.01)
        if item == 2:
            raise ValueError("the third item")

    with pytest.raises(ValueError, match="the third item"):
        list(several_at_once(compute, range(200)))
    assert len(begun) < 20
