"""The search finds the largest batch in few tries."""

import pytest

from bert_jax.tpu_compiler.largest_batch import largest_batch


@pytest.mark.parametrize("limit", [0, 7, 8, 9, 100, 1000, 1024])
def test_the_largest_multiple_that_fits_is_found(limit: int) -> None:
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        return batch <= limit

    assert largest_batch(fits, 8) == limit // 8 * 8
    assert len(tried) == len(set(tried)) <= 16
