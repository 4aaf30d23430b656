"""Where the phases of a run begin and end, and how its masking rate changes."""

import pytest

from data_pipeline.config import DataConfig, MaskingConfig, Phase, Stretch
from data_pipeline.errors import UserError


def test_phases_follow_each_other_without_a_gap_to_the_last_step() -> None:
    third = Phase(fraction=1 / 3)
    stretches = DataConfig(phases=(third, third, third)).stretches(100)
    assert stretches == (Stretch(0, third, 0, 33), Stretch(1, third, 33, 67), Stretch(2, third, 67, 100))


def test_a_phase_may_be_too_short_for_a_step() -> None:
    phases = (Phase(fraction=0.01), Phase(fraction=0.99))
    assert [(s.start, s.stop) for s in DataConfig(phases=phases).stretches(10)] == [(0, 0), (0, 10)]


def test_the_masking_rate_changes_in_a_straight_line() -> None:
    masking = MaskingConfig(rate=0.3, last_rate=0.15, mask=1.0, same=0.0, random=0.0)
    assert [masking.at(done).rate for done in (0.0, 0.5, 1.0)] == pytest.approx([0.3, 0.225, 0.15])
    assert masking.at(0.5).at(1.0).rate == pytest.approx(0.225)
    assert masking.highest_rate == 0.3
    assert MaskingConfig(rate=0.1, last_rate=0.4).highest_rate == 0.4


@pytest.mark.parametrize(("rate", "last_rate"), [(0.15, 0.0), (0.15, 1.0), (0.0, 0.15), (0.15, float("nan"))])
def test_a_run_that_masks_masks_to_its_end(rate: float, last_rate: float) -> None:
    with pytest.raises(UserError, match=r"data\.masking\.last_rate is .*; it must be above 0 and below 1"):
        MaskingConfig(rate=rate, last_rate=last_rate)
