"""What `--status` says of each job: done, under way and where, how far, interrupted, failed, left."""

import datetime
import json
import os
from pathlib import Path

import pytest

from bert_jax.parallel.leases import Leases
from bert_jax.studies.directory import LEASES_DIRECTORY, Ended, write_ended
from bert_jax.studies.plan import MeasuringJob, PretrainingJob
from bert_jax.studies.show import show_status
from bert_jax.training.metric_log import METRICS_FILE
from bert_jax.workdir.grid import RESULT_FILE, TRIALS_DIRECTORY, write_trials
from tests.bert_jax.studies.small_study import plan_of


def states(said: str) -> dict[str, str]:
    """The state of each job, by its path."""
    found: dict[str, str] = {}
    run = ""
    for line in said.splitlines()[1:-1]:
        name, _, state = line.strip().partition(" ")
        if line.startswith("  "):
            found[f"{run}/{name}"] = state.strip()
        else:
            run = name
    return found


def test_status_says_where_jobs_are_and_how_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plan = plan_of()
    base, mlm, ltr = (job for job in plan.jobs if isinstance(job, PretrainingJob))
    tuned, failed, *_ = (job for job in plan.jobs if isinstance(job, MeasuringJob))
    write_ended(tmp_path, base, Ended(base.settings, 3.0, "1 x cpu"))
    write_ended(tmp_path, failed, Ended(failed.settings, 3.0, "1 x cpu", error="no such file [/x]"))
    rows = [
        {"step": 2, "split": "train", "timing": {"seconds": 1.0, "time": 1e9, "seconds_left": 3600.0}},
        {
            "step": 4,
            "split": "train",
            "timing": {"seconds": 1.0, "time": 1e9 + 60, "seconds_left": 30 * 86400.0},
        },
        {"step": 4, "split": "heldout"},
    ]
    for run in (mlm, ltr):
        (tmp_path / run.path).mkdir(parents=True)
        (tmp_path / run.path / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / tuned.path / TRIALS_DIRECTORY / "a").mkdir(parents=True)
    (tmp_path / tuned.path / TRIALS_DIRECTORY / "a" / RESULT_FILE).write_text("{}")
    write_trials(tmp_path / tuned.path, ["a", "b", "c"])
    leases = Leases(tmp_path / LEASES_DIRECTORY)
    with leases.hold(mlm.path), leases.hold(tuned.path):
        show_status(plan, tmp_path)
    said = capsys.readouterr().out
    here = f"under way on {os.uname().nodename}, process {os.getpid()}"
    end = datetime.datetime.fromtimestamp(1e9 + 60 + 30 * 86400)
    expected = {str(job.path): "left" for job in plan.jobs} | {
        str(base.path): "done",
        str(failed.path): "failed: no such file [/x]",
        str(mlm.path): f"{here}, step 4 of 8, until {end:%Y-%m-%d %H:%M}",
        str(ltr.path): "interrupted, step 4 of 8",
        str(tuned.path): f"{here}, trial 2 of 3",
    }
    assert states(said) == expected
    assert "1 of 7 done, 2 under way, 1 failed, 3 left" in said
