"""Where the phases of a run begin and end."""

from data_pipeline.config import DataConfig, Phase, Stretch


def test_phases_follow_each_other_without_a_gap_to_the_last_step() -> None:
    third = Phase(fraction=1 / 3)
    stretches = DataConfig(phases=(third, third, third)).stretches(100)
    assert stretches == (Stretch(0, third, 0, 33), Stretch(1, third, 33, 67), Stretch(2, third, 67, 100))


def test_a_phase_may_be_too_short_for_a_step() -> None:
    phases = (Phase(fraction=0.01), Phase(fraction=0.99))
    assert [(s.start, s.stop) for s in DataConfig(phases=phases).stretches(10)] == [(0, 0), (0, 10)]
