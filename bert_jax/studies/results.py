"""What a study has measured so far, read from its directory: what tables and reports are made of."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.studies.directory import JOB_FILE, Ended, last_command, read_ended
from bert_jax.studies.plan import MeasuringJob, Plan, PretrainingJob
from bert_jax.task import only_guesses
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from bert_jax.workdir.provenance import code
from bert_jax.workdir.record import CONFIG_FILE, read_record
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class Measurement:
    """All metrics of one measured model: one line of `results.csv` for each metric."""

    arm: str
    seed: int
    """Pretraining seed."""
    step: int
    """Pretraining step of the checkpoint."""
    measure: str
    """`Measure.name`."""
    metrics: Mapping[str, float]
    """Name -> value on the dev set, in the unit of papers: of fine-tuned models percent; NaN if the trial
    diverged."""
    hyperparameters: str = ""
    """Of a fine-tuned model, such as "lr3e-05-batch32-epochs3"; empty where there are none to choose."""
    finetuning_seed: int | None = None
    layer: int | None = None
    """Of a probe, the layer that it sees."""
    degenerate: str | None = None
    """One sentence if the model predicts the same for every item."""
    diverged: str | None = None
    """One sentence if the loss was not finite."""
    items: Path | None = None
    """`.npz` of each metric's outcomes on the dev set's items: name -> [N, ...], what the `Statistic` takes
    that `bert_jax.studies.weighted_metrics.statistic_of` gives."""
    items_scale: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Metric -> what the statistic of its outcomes is multiplied by to have the unit of `metrics`; without
    an entry 1."""
    data_fingerprint: str = ""
    """Of minimal pairs, a hash of them; of fine-tuning data the records of the trials have one."""


@dataclasses.dataclass(frozen=True)
class PretrainedRun:
    """How far the pretraining of one arm with one seed is, and what it cost."""

    arm: str
    seed: int
    step: int
    """Of the last row of metrics; 0 before the first."""
    heldout: Sequence[Mapping[str, Any]]
    """Rows of `metrics.jsonl` whose split is `heldout`."""
    seconds: float
    """Time spent in steps and evaluation."""
    devices: str
    """Such as "1 x cpu"."""
    only_guesses: bool = False
    """Whether it has ended with held-out metrics that are hardly better than those of guessing."""


@dataclasses.dataclass(frozen=True)
class StudyResults:
    """A study at one scale, complete or not."""

    plan: Plan
    runs: Sequence[PretrainedRun]
    measurements: Sequence[Measurement]
    num_done: int
    failed: Mapping[str, str]
    """Path of a job -> why it failed, in one line."""
    made_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What it takes to make them again: command, corpus, code, as far as the directory tells."""


def collect(plan: Plan, directory: Path) -> StudyResults:
    """The results of a study, complete or not; nothing is computed again.

    Raises:
      UserError: a file is damaged.
    """
    ended = {job.path: read_ended(directory / job.path) for job in plan.jobs}
    return StudyResults(
        plan=plan,
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
        num_done=sum(found is not None and not found.error for found in ended.values()),
        failed={str(path): found.error for path, found in ended.items() if found and found.error},
        made_by=_made_by(plan, directory),
    )


def _made_by(plan: Plan, directory: Path) -> dict[str, str]:
    places = dict.fromkeys(directory / run.path for run in plan.runs.values())
    records = [read_record(place) for place in places if (place / CONFIG_FILE).exists()]
    command = last_command(directory)
    said = {
        "command": [f"bert-jax study {command}"] if command else [],
        "fingerprint of the corpus": [record.corpus_fingerprint for record in records],
        "initial model": [
            f"{record.init_from}, fingerprint {record.init_fingerprint}"
            for record in records
            if record.init_from
        ],
        "code": [
            ", ".join(f"{name} {version}" for name, version in code(record.starts[-1]).items())
            for record in records
        ],
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in said.items() if values}


def _pretrained(
    directory: Path, arm: str, seed: int, run: PretrainingJob, ended: Ended | None
) -> PretrainedRun:
    rows = read_rows(directory / run.path / METRICS_FILE)
    heldout = [row for row in rows if row["split"] == "heldout"]
    has_ended = bool(heldout) and heldout[-1]["step"] == run.experiment.num_train_steps
    return PretrainedRun(
        arm=arm,
        seed=seed,
        step=max((row["step"] for row in rows), default=0),
        heldout=heldout,
        seconds=math.fsum(row.get("timing", {}).get("seconds", 0.0) for row in rows),
        devices=ended.devices if ended else "",
        only_guesses=has_ended and only_guesses(run.experiment.objective.metrics, heldout[-1]),
    )


def _measurements(
    directory: Path, arm: str, seed: int, job: MeasuringJob, ended: Ended
) -> Iterator[Measurement]:
    for fields in ended.measurements:
        try:
            yield _measurement(directory, arm, seed, job, fields)
        except (KeyError, TypeError, AttributeError) as error:
            path = directory / job.path / JOB_FILE
            raise UserError(
                f"{path} is damaged, or of another version of bert-jax; remove it, and the job is done again"
            ) from error


def _measurement(
    directory: Path, arm: str, seed: int, job: MeasuringJob, fields: Mapping[str, Any]
) -> Measurement:
    metrics = {name: math.nan if value is None else value for name, value in fields["metrics"].items()}
    items = directory / job.path / fields["items"] if fields.get("items") else None
    scale = fields.get("items_scale", {})
    if not isinstance(scale, Mapping):  # older files have one for all metrics
        scale = dict.fromkeys(metrics, scale)
    own = {**fields, "metrics": metrics, "items": items, "items_scale": scale}
    return Measurement(arm, seed, job.step, job.measure.name, **own)
