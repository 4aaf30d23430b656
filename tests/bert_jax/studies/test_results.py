"""What is read from a study's directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert_jax.studies.directory import JOB_FILE, Ended, write_ended
from bert_jax.studies.results import collect
from bert_jax.training.metric_log import METRICS_FILE
from data_pipeline.errors import UserError
from tests.bert_jax.studies.small_study import plan_of

LEARNT = {"mlm_accuracy": 0.2, "mlm_guess_accuracy": 0.1, "nsp_accuracy": 0.5, "nsp_guess_accuracy": 0.6}
NOT_LEARNT = {**LEARNT, "mlm_accuracy": 0.1}
HARDLY = {**LEARNT, "mlm_accuracy": 0.14}


@pytest.mark.parametrize(
    ("rows", "only_guesses"),
    [
        ([], False),
        ([(4, NOT_LEARNT)], False),  # it may yet learn
        ([(4, LEARNT), (8, NOT_LEARNT)], True),
        ([(4, NOT_LEARNT), (8, LEARNT)], False),
        ([(8, HARDLY)], True),
        ([(8, {**HARDLY, "nsp_accuracy": 0.9})], True),  # tokens decide
        ([(8, {"mlm_accuracy": 0.0})], False),
    ],
)
def test_a_pretraining_that_ended_hardly_better_than_guessing_is_known(
    tmp_path: Path, rows: list[tuple[int, dict[str, Any]]], only_guesses: bool
) -> None:
    plan = plan_of()
    (path,) = {run.path for (arm, _), run in plan.runs.items() if arm == "base"}
    (tmp_path / path).mkdir(parents=True)
    lines = [json.dumps({"step": step, "split": "heldout", **metrics}) + "\n" for step, metrics in rows]
    (tmp_path / path / METRICS_FILE).write_text("".join(lines))
    found = {run.arm: run.only_guesses for run in collect(plan, tmp_path).runs}
    assert found == {arm: only_guesses and arm == "base" for arm in found}


@pytest.mark.parametrize("scale", [100.0, {"accuracy": 100.0}])
def test_older_files_have_one_scale_for_all_metrics(tmp_path: Path, scale: object) -> None:
    plan = plan_of()
    (job,) = plan.measured["base", 0]
    fields = {"metrics": {"accuracy": 50.0}, "items": "items.npz", "items_scale": scale}
    write_ended(tmp_path, job, Ended(job.settings, 1.0, "1 x cpu", (fields,)))
    (found,) = (one for one in collect(plan, tmp_path).measurements if one.arm == "base")
    assert found.items_scale == {"accuracy": 100.0}


@pytest.mark.parametrize(
    "damage",
    [
        {"measurements": [{}]},
        {"measurements": [{"metrics": {}, "colour": "red"}]},
        {"measurements": None},
        {"settings": None},
    ],
)
def test_a_damaged_record_of_a_job_is_named(tmp_path: Path, damage: dict[str, Any]) -> None:
    plan = plan_of()
    (job,) = plan.measured["base", 0]
    write_ended(tmp_path, job, Ended(job.settings, 1.0, "1 x cpu"))
    file = tmp_path / job.path / JOB_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    with pytest.raises(UserError, match=f"^{file} is damaged.*; remove it, and the job is done again$"):
        collect(plan, tmp_path)


def test_a_run_is_as_far_as_its_last_row_and_took_the_seconds_of_all(tmp_path: Path) -> None:
    plan = plan_of()
    directory = tmp_path / plan.runs["base", 0].path
    directory.mkdir(parents=True)
    rows = [(2, "train", 1.5), (4, "heldout", 2.0), (6, "train", 1.0)]
    lines = [json.dumps({"step": n, "split": split, "timing": {"seconds": s}}) for n, split, s in rows]
    (directory / METRICS_FILE).write_text("".join(f"{line}\n" for line in lines))
    (run,) = (run for run in collect(plan, tmp_path).runs if run.arm == "base")
    assert (run.step, run.seconds) == (6, 4.5)
