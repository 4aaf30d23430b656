"""Where the phases of a run begin and end, and how its masking rate changes."""

from collections.abc import Callable

import numpy as np
import pytest

from data_pipeline.checks import check_positive, check_seed
from data_pipeline.config import DataConfig, MaskingConfig, Phase, Stretch
from data_pipeline.errors import UserError


@pytest.mark.parametrize(
    ("check", "value"), [(check_positive, 1e5), (check_positive, 1.5), (check_seed, 1.0), (check_seed, 0.5)]
)
def test_steps_sizes_and_seeds_are_whole_numbers(check: Callable[[str, float], None], value: float) -> None:
    """Floats such as 1e5 are easily written in an experiment."""
    with pytest.raises(UserError, match=f"num is {value!r}; it must be a whole number"):
        check("num", value)


def test_a_size_may_be_a_whole_number_of_numpy_and_no_bool() -> None:
    check_positive("num", np.int64(5), 10)
    with pytest.raises(UserError, match=r"num is True; it must be a whole number$"):
        check_positive("num", True, 10)


def test_phases_follow_each_other_without_a_gap_to_the_last_step() -> None:
    third = Phase(fraction=1 / 3)
    stretches = DataConfig(phases=(third, third, third)).stretches(100, 8)
    assert stretches == tuple(
        Stretch(number, third, start, stop, 8, 0)
        for number, (start, stop) in enumerate(((0, 33), (33, 67), (67, 100)))
    )


def test_a_phase_may_be_too_short_for_a_step() -> None:
    phases = (Phase(fraction=0.01), Phase(fraction=0.99))
    assert [(s.start, s.stop) for s in DataConfig(phases=phases).stretches(10, 8)] == [(0, 0), (0, 10)]


def test_phases_are_cut_where_the_batch_size_changes() -> None:
    short, long = Phase(fraction=0.5), Phase(fraction=0.5)
    data = DataConfig(
        phases=(short, long), batch_schedule=((0.2, 0.25), (0.6, 0.5), (0.601, 0.1), (0.9, 1.0))
    )
    assert data.stretches(10, 8) == (
        Stretch(0, short, 0, 2, 2, 0),
        Stretch(0, short, 2, 5, 4, 4),
        Stretch(1, long, 5, 6, 4, 0),
        Stretch(1, long, 6, 9, 8, 4),
        Stretch(1, long, 9, 10, 8, 28),
    )


def test_an_end_of_a_phase_and_of_a_batch_size_at_one_fraction_are_one_step() -> None:
    phases = (Phase(fraction=0.7), Phase(fraction=0.2), Phase(fraction=0.1))
    data = DataConfig(phases=phases, batch_schedule=((0.7, 0.25), (0.9, 1.0)))
    for steps in range(1000, 20_000, 5):
        assert len(data.stretches(steps, 8)) == 3, steps


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (((0.5, 0.5), (0.2, 1.0)), r"sizes until 0\.5, 0\.2 of the run; .* ascending"),
        (((0.0, 0.5),), "must be above 0"),
        (((1.5, 0.5),), "at most 1"),
        (((float("nan"), 0.5),), "until nan"),
        (((0.5, 0.0),), r"0 of global_batch_size until 0\.5; it must be above 0 and at most 1"),
        (((0.5, 1.1),), r"1\.1 of global_batch_size until 0\.5"),
    ],
)
def test_impossible_schedules_of_the_batch_are_refused(schedule: tuple, message: str) -> None:
    with pytest.raises(UserError, match=message):
        DataConfig(batch_schedule=schedule)


def test_the_masking_rate_changes_in_a_straight_line() -> None:
    masking = MaskingConfig(rate=0.3, last_rate=0.15, mask=1.0, same=0.0, random=0.0)
    assert [masking.at(done).rate for done in (0.0, 0.5, 1.0)] == pytest.approx([0.3, 0.225, 0.15])
    assert masking.at(0.5).at(1.0).rate == pytest.approx(0.225)
    assert masking.highest_rate == 0.3
    assert MaskingConfig(rate=0.1, last_rate=0.4).highest_rate == 0.4


@pytest.mark.parametrize("last_rate", [0.0, 1.0, float("nan")])
def test_a_run_that_masks_masks_to_its_end(last_rate: float) -> None:
    with pytest.raises(UserError, match=r"data\.masking\.last_rate is .*; it must be above 0 and below 1"):
        MaskingConfig(rate=0.15, last_rate=last_rate)


def test_a_run_that_masks_nothing_has_no_last_rate() -> None:
    with pytest.raises(UserError, match=r"last_rate needs masks, and data\.masking\.rate is 0"):
        MaskingConfig(rate=0.0, last_rate=0.15)
