"""Equal hours for all arms: the steps follow from the speed, are measured once, and stay as they are."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bert_jax.objectives.experiment import Experiment
from bert_jax.studies.budget import (
    BUDGET_FILE,
    check_steps,
    keep_steps,
    read_steps,
    seconds_of_steps,
    steps_in,
)
from bert_jax.studies.cost import measured_speed
from bert_jax.studies.directory import STUDY_FILE
from bert_jax.studies.plan import make_plan
from bert_jax.study import Arm
from bert_jax.training.accounting import run_flops
from data_pipeline.config import Phase
from data_pipeline.errors import UserError
from tests.bert_jax.studies.small_study import STUDY, TINY, plan_of

IDENTITY = {"study": "tiny", "scale": "one", "budget_hours": 0.5}


def with_phases(*phases: Phase) -> Experiment:
    return dataclasses.replace(TINY, data=dataclasses.replace(TINY.data, phases=phases))


def test_the_seconds_of_a_step_are_those_of_all_phases() -> None:
    short, long = (Phase(length, 5, fraction) for length, fraction in ((16, 0.75), (32, 0.25)))
    speeds = {short: 1e6, long: 1e5}
    seconds = seconds_of_steps({"base": with_phases(short, long)}, lambda _, phase: speeds[phase])["base"]
    of_short, of_long = (
        run_flops(with_phases(dataclasses.replace(phase, fraction=1.0))) / TINY.num_train_steps
        for phase in (short, long)
    )
    assert seconds == pytest.approx(0.75 * of_short / 1e6 + 0.25 * of_long / 1e5)


def test_slower_arms_do_fewer_steps_and_every_arm_does_one() -> None:
    assert steps_in(2, {"base": 0.5, "slow": 3600.0}) == {"base": 14400, "slow": 2}
    with pytest.raises(
        UserError, match=r"--budget-hours 0\.5 is below one step of arm slow, which takes 3\.6e"
    ):
        steps_in(0.5, {"base": 0.5, "slow": 3600.0})


def keep(directory: Path, monkeypatch: pytest.MonkeyPatch, speeds: Mapping[str, float]) -> dict[str, int]:
    """Keeps the steps of arms that are so fast, in FLOPs a second; returns all steps."""
    experiments = {arm: dataclasses.replace(TINY, log_every=n + 1) for n, arm in enumerate(speeds)}
    of_experiment: dict[Experiment, float] = {experiments[arm]: speed for arm, speed in speeds.items()}
    monkeypatch.setattr("bert_jax.studies.budget.measured_speed", lambda run, _: of_experiment[run])
    keep_steps(experiments, directory, IDENTITY, 0.5)
    return {arm: kept.num_train_steps for arm, kept in read_steps(directory).items()}


def test_steps_that_were_measured_stay_when_arms_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run_flops(TINY) / TINY.num_train_steps
    assert keep(tmp_path, monkeypatch, {"base": one}) == {"base": 1800}
    assert (tmp_path / STUDY_FILE).exists()
    # Another machine, on which the first arm is faster.
    assert keep(tmp_path, monkeypatch, {"base": 5 * one, "mlm": 2 * one}) == {"base": 1800, "mlm": 3600}


def test_below_one_step_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="below one step of arm base"):
        keep(tmp_path / "study", monkeypatch, {"base": 1e-3})
    assert not (tmp_path / "study").exists()


def test_steps_of_other_settings_are_refused_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = keep(tmp_path, monkeypatch, {"base": 1e9})

    def check(changes: Mapping[str, Any]) -> None:
        plan = make_plan(STUDY, "one", STUDY.scales["one"], changes, steps=steps)
        assert plan.experiments["base"].num_train_steps == steps["base"]
        assert plan.experiments["mlm"].num_train_steps == changes.get("num_train_steps", TINY.num_train_steps)
        check_steps(read_steps(tmp_path), plan, tmp_path)

    check({})
    check({"num_train_steps": 99, "log_every": 7})
    with pytest.raises(UserError, match=r"steps of arm base with other settings: global_batch_size 8 -> 16;"):
        check({"global_batch_size": 16})
    (tmp_path / BUDGET_FILE).write_text('{"base": {"steps": 3}}')
    with pytest.raises(UserError, match=r"budget.json is damaged"):
        read_steps(tmp_path)


def test_a_step_from_which_the_rate_decays_goes_with_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decaying = dataclasses.replace(TINY, optimizer=dataclasses.replace(TINY.optimizer, decay_start=4))
    monkeypatch.setattr("bert_jax.studies.budget.measured_speed", lambda *_: 1e6)
    whole = plan_of(arms={"base": Arm(decaying)})
    keep_steps(whole.experiments, tmp_path, IDENTITY, 0.5)
    steps = {arm: kept.num_train_steps for arm, kept in read_steps(tmp_path).items()}
    plan = make_plan(whole.study, "one", whole.scale, {}, steps=steps)
    assert plan.experiments["base"].optimizer.decay_start == round(steps["base"] / 2)
    check_steps(read_steps(tmp_path), plan, tmp_path)


def test_what_does_not_change_the_speed_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Experiment] = []

    def measure(experiment: Experiment, _: Phase) -> float:
        measured.append(experiment)
        return 1.0

    monkeypatch.setattr("bert_jax.studies.cost._measure", measure)
    changes = {
        "optimizer.learning_rate": 1.0,
        "optimizer.decay_shape": "sqrt",
        "optimizer.decay_start": 5,
        "data.masking.mask": 1.0,
        "data.masking.same": 0.0,
        "data.masking.random": 0.0,
        "seed": 3,
    }
    longer = dataclasses.replace(plan_of(changes).experiments["base"], num_train_steps=99)
    for experiment in (TINY, longer):
        measured_speed(experiment, experiment.data.phases[0])
    assert len(set(measured)) == 1


def test_a_step_that_would_end_after_the_hours_is_not_counted() -> None:
    assert steps_in(1.0, {"arm": 3600 / 2.7}) == {"arm": 2}
