"""Reads from a study's directory what it has measured so far."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from bert_jax.studies.directory import Ended, read_ended
from bert_jax.studies.plan import MeasuringJob, Plan, PretrainingJob
from bert_jax.studies.results import Measurement, PretrainedRun, StudyResults
from bert_jax.task import only_guesses
from bert_jax.training.accounting import flops_done
from bert_jax.training.metric_log import METRICS_FILE, read_rows


def collect(plan: Plan, directory: Path) -> StudyResults:
    """The results of a study, complete or not; nothing is computed again.

    Raises:
      UserError: a file is damaged.
    """
    ended = {job.path: read_ended(directory / job.path) for job in plan.jobs}
    return StudyResults(
        study=plan.study,
        scale_name=plan.scale_name,
        scale=plan.scale,
        experiments=plan.experiments,
        changed=plan.changed,
        runs=[
            _pretrained(directory, arm, seed, run, ended[run.path]) for (arm, seed), run in plan.runs.items()
        ],
        measurements=[
            measurement
            for (arm, seed), jobs in plan.measured.items()
            for job in jobs
            if (found := ended[job.path]) is not None
            for measurement in _measurements(directory, arm, seed, job, found)
        ],
        num_jobs=len(plan.jobs),
        num_done=sum(found is not None and not found.error for found in ended.values()),
        failed={str(path): found.error for path, found in ended.items() if found and found.error},
    )


def _pretrained(
    directory: Path, arm: str, seed: int, run: PretrainingJob, ended: Ended | None
) -> PretrainedRun:
    rows = read_rows(directory / run.path / METRICS_FILE)
    step = max((row["step"] for row in rows), default=0)
    heldout = [row for row in rows if row["split"] == "heldout"]
    has_ended = bool(heldout) and heldout[-1]["step"] == run.experiment.num_train_steps
    return PretrainedRun(
        arm=arm,
        seed=seed,
        step=step,
        num_train_steps=run.experiment.num_train_steps,
        heldout=heldout,
        flops=flops_done(run.experiment, step),
        seconds=math.fsum(row.get("timing", {}).get("seconds", 0.0) for row in rows),
        devices=ended.devices if ended else "",
        only_guesses=has_ended and only_guesses(run.experiment.objective.metrics, heldout[-1]),
    )


def _measurements(
    directory: Path, arm: str, seed: int, job: MeasuringJob, ended: Ended
) -> Iterator[Measurement]:
    for fields in ended.measurements:
        metrics = {name: math.nan if value is None else value for name, value in fields["metrics"].items()}
        items = directory / job.path / fields["items"] if fields.get("items") else None
        scale = fields.get("items_scale", {})
        if not isinstance(scale, Mapping):  # older files have one for all metrics
            scale = dict.fromkeys(metrics, scale)
        own = {**fields, "metrics": metrics, "items": items, "items_scale": scale}
        yield Measurement(arm, seed, job.step, job.measure.name, **own)
