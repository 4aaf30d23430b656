"""The time left is estimated from work, not steps; start-up time is not part of the first row."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from bert_jax.training.log import TrainingLog
from bert_jax.training.speed import Stopwatch


def work_left(step: int) -> float:
    """Work left after `step`, for 90 steps of work 1, then 10 of work 5."""
    return max(90 - step, 0) + 5 * min(100 - step, 10)


@pytest.mark.parametrize(("step", "counted", "laps"), [(80, 20, 60 / 20), (95, 10, 25 / 30), (100, 5, 0)])
def test_later_steps_that_take_longer_are_counted_as_such(step: int, counted: int, laps: float) -> None:
    stopwatch = Stopwatch(jax.devices(), work_left)
    for _ in range(counted):
        stopwatch.count(flops=1)
    timing = stopwatch.lap(step, 1.0, 1.0, 0.0)
    assert timing["seconds_left"] == pytest.approx(laps * timing["seconds"])


def test_flops_that_are_not_counted_have_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bert_jax.training.speed.peak_flops", lambda kind: 1e12)
    stopwatch = Stopwatch(jax.devices(), work_left)
    for flops in (0, 1):
        stopwatch.count(flops)
        timing = stopwatch.lap(1, 1.0, 1.0, 0.0)
        for rate in ("model_flops_per_second", "fraction_of_peak"):
            assert (timing[rate] is None) == (flops == 0)


def test_work_that_is_not_counted_has_no_end() -> None:
    stopwatch = Stopwatch(jax.devices(), lambda _: 0.0)
    stopwatch.count(flops=0)
    assert stopwatch.lap(1, 1.0, 1.0, 0.0)["seconds_left"] is None


def test_time_before_the_beginning_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stopwatch = Stopwatch(jax.devices(), work_left)
    now[0] += 50
    stopwatch.begin()
    stopwatch.count(flops=1)
    now[0] += 2
    timing = stopwatch.lap(1, 8.0, 1.0, 0.0)
    assert timing["sequences_per_second"] == 4


def test_an_evaluation_before_the_first_step_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now = [150.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    task, run = SimpleNamespace(metrics=()), SimpleNamespace(num_train_steps=100)
    program: Any = SimpleNamespace(task=task, run=run, devices=jax.devices())
    log = TrainingLog(tmp_path, program, 0, work_left, began=100.0, seconds_compiled=2.0)
    with contextlib.closing(log):
        log.evaluation_row(0, {"loss": 1.0}, 45.0)
        log.count_compiled_step(1, 1.5, 3.0)
    assert "first step after 5.0 s, 3.5 s of them compiling\n" in capsys.readouterr().out


def test_rates_are_of_all_steps_and_the_peak_of_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr("bert_jax.training.speed.peak_flops", lambda kind: 6.0)
    stopwatch = Stopwatch(jax.devices()[:1] * 2, lambda step: 0.0)
    for _ in range(3):
        stopwatch.count(flops=4)
    now[0] += 2
    timing = stopwatch.lap(3, 8.0, 10.0, 0.5)
    names = ("sequences_per_second", "tokens_per_second", "fraction_of_peak", "waiting_for_data")
    assert [timing[name] for name in names] == [12, 15, 0.5, 0.25]


def test_excluded_seconds_are_not_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stopwatch = Stopwatch(jax.devices(), lambda step: 0.0)
    stopwatch.count(flops=1)
    now[0] += 5
    stopwatch.exclude(3)
    assert stopwatch.lap(1, 8.0, 1.0, 0.0)["seconds"] == 2
