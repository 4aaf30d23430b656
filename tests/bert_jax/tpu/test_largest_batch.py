"""The search finds the largest batch in few tries."""

from collections.abc import Callable

import pytest

from bert_jax.cli.main import main
from bert_jax.tpu.largest_batch import largest_batch

GIB = 2**30
CAPACITY = 16 * GIB


def search(memory: Callable[[int], float], limit: int) -> tuple[int, list[int]]:
    """The batch that the search finds if batches up to a limit fit, and the batches that it tried."""
    tried: list[int] = []

    def compiled(batch: int) -> int | None:
        tried.append(batch)
        return int(memory(batch)) if batch <= limit else None

    return largest_batch(compiled, CAPACITY, 8, (4, 2, 1)), tried


@pytest.mark.parametrize("limit", [8, 9, 15, 16, 100, 1000, 1024])
def test_it_is_found_at_once_where_memory_is_in_proportion(limit: int) -> None:
    found, tried = search(lambda batch: CAPACITY * (0.2 + 0.8 * batch / max(limit, 1)), limit)
    assert found == limit // 8 * 8
    assert len(tried) == len(set(tried)) <= 5


@pytest.mark.parametrize(("limit", "largest"), [(7, 4), (4, 4), (3, 2), (1, 1), (0, 0)])
def test_where_eight_rows_do_not_fit_fewer_are_tried(limit: int, largest: int) -> None:
    found, tried = search(lambda batch: GIB * batch, limit)
    assert found == largest
    assert tried == [8, 4, 2, 1][: len(tried)]


@pytest.mark.parametrize("limit", [8, 24, 200, 1000])
@pytest.mark.parametrize("memory", [lambda batch: GIB, lambda batch: GIB + batch**2, lambda batch: 20 * GIB])
def test_it_is_found_where_memory_says_little(memory: Callable[[int], float], limit: int) -> None:
    found, tried = search(memory, limit)
    assert found == limit // 8 * 8
    assert len(tried) == len(set(tried))


@pytest.mark.tpu
def test_batches_are_tried_that_micro_batches_share(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("--model.num-layers", "1", "--model.hidden-size", "128", "--model.num-heads", "2")
    too_many_rows = ("--model.vocab-size", str(2**24))
    command = ["compile", "base", "--topology", "v5e:1x1", "--parallel.accumulation-steps", "16"]
    assert main([*command, "--largest-batch", *tiny, *too_many_rows]) == 1
    assert "\n16 sequences a chip do not fit" in capsys.readouterr().err
