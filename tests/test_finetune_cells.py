"""Which cells the flags of `bert-jax finetune` make."""

import pytest

from bert_jax.cli.finetune import parse
from bert_jax.finetuning.cells import cell_config
from bert_jax.finetuning.config import Cell, FineTuningConfig


def cells(*flags: str) -> list[Cell]:
    return parse(["cola", "--model=m", "--data=d", "--output=o", *flags]).training.cells()


def test_without_flags_there_is_one() -> None:
    assert cells() == [Cell(learning_rate=3e-5, batch_size=32, epochs=3.0, seed=0)]


@pytest.mark.parametrize(
    ("given", "count"), [((), 18), (("--batch-size", "32"), 9), (("--learning-rate", "4e-5", "5e-5"), 12)]
)
def test_the_papers_grid_fills_what_is_not_given(given: tuple[str, ...], count: int) -> None:
    grid = cells("--grid", *given)
    assert len(set(grid)) == len(grid) == count
    if "--batch-size" in given:
        assert {cell.batch_size for cell in grid} == {32}


def test_repeats_may_be_spread_over_machines() -> None:
    assert [cell.seed for cell in cells("--seeds=2", "--first-seed=3")] == [3, 4]


@pytest.mark.parametrize(("rows", "every"), [(80, 10), (80_000, 1000)])
def test_a_long_epoch_is_saved_before_its_end(rows: int, every: int) -> None:
    config = cell_config(FineTuningConfig(), Cell(3e-5, 8, 2.0, 0), rows)
    assert (config.checkpoint_every, config.eval_every) == (every, rows // 8)


def test_a_value_that_is_given_twice_is_one_cell() -> None:
    assert [cell.learning_rate for cell in cells("--learning-rate", "3e-5", "5e-5", "3e-5")] == [3e-5, 5e-5]
