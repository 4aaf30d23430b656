"""Branching: a run that continues from another run's checkpoint (params, moments, step) with new settings.

This serves to try another learning rate, seed or number of steps, or to train past a NaN.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from bert_jax.config import MODEL_PARTS, MODEL_SIZES
from bert_jax.training.checkpoints import DIRECTORY, find_checkpoint, saved_steps
from bert_jax.training.metric_log import METRICS_FILE
from bert_jax.workdir.config_text import differences, flatten
from bert_jax.workdir.record import MAY_CHANGE, BranchPoint, RunRecord, read_record
from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError

# The settings that decide which arrays a state has.
_OF_ARRAYS = (*(f"model.{name}" for name in (*MODEL_SIZES, *MODEL_PARTS)), "optimizer.name")


@dataclasses.dataclass(frozen=True)
class Origin:
    """A checkpoint to branch from."""

    workdir: Path
    step: int
    directory: Path
    """Directory of the checkpoint."""
    record: RunRecord

    @property
    def point(self) -> BranchPoint:
        """What a record says of it."""
        return BranchPoint(_name(self.workdir), self.step)

    def differences(self, now: RunRecord) -> list[str]:
        """`setting before -> now` for each changed setting that affects results."""
        unimportant = MAY_CHANGE - {"num_train_steps"}
        return differences(flatten(self.record.experiment), flatten(now.experiment), unimportant)


def find_origin(workdir: Path, step: int | None, now: RunRecord) -> Origin:
    """Finds the checkpoint that a new run branches from, and checks that it fits.

    Args:
      workdir: work directory of the run that has the checkpoint.
      step: step of the checkpoint; None takes the newest.
      now: record of the new run.

    Raises:
      UserError: the run or checkpoint does not exist or is damaged; its model or optimizer is another one,
        whose arrays would not fit; the new run has no steps left after that step.
    """
    record = read_record(workdir)
    step, directory = find_checkpoint(workdir, step)
    if changed := differences(_of_arrays(record), _of_arrays(now), ()):
        raise UserError(
            f"the state of {workdir} does not fit: {'; '.join(changed)}; undo these changes, or start from "
            "its parameters alone by --init-from"
        )
    if step >= now.experiment.num_train_steps:
        raise UserError(
            f"{workdir} is at step {step}; give --num-train-steps above that, or --branch-step one of "
            f"{saved_steps(workdir)}"
        )
    return Origin(workdir, step, directory, record)


def check_same_origin(directory: Path, branched_from: BranchPoint, workdir: Path, step: int | None) -> None:
    """Checks that a run branched from the run that --branch-from names, which may itself be gone.

    Args:
      directory: work directory of the run.
      branched_from: `RunRecord.branched_from` of the run.
      workdir: directory that --branch-from names.
      step: step that --branch-step names; None matches any.

    Raises:
      UserError: they differ; it names both.
    """
    name = _name(workdir)
    if branched_from.run == name and step in (None, branched_from.step):
        return
    began = f"branched from {branched_from}" if branched_from.run else "began at step 0"
    wanted = name if step is None else BranchPoint(name, step)
    raise UserError(
        f"{directory} holds a run that {began}, not one from {wanted} of --branch-from; leave that out to "
        f"resume it, or give another --workdir"
    )


def _name(workdir: Path) -> str:
    return workdir.resolve().name


def copy_state(origin: Origin, workdir: Path) -> None:
    """Copies metrics.jsonl and then the checkpoint into a work directory that has no checkpoints."""
    if (origin.workdir / METRICS_FILE).exists():
        shutil.copyfile(origin.workdir / METRICS_FILE, workdir / METRICS_FILE)
    with atomically(workdir / DIRECTORY) as partial:
        shutil.copytree(origin.directory, partial / str(origin.step))


def _of_arrays(record: RunRecord) -> dict[str, Any]:
    settings = flatten(record.experiment)
    return {name: settings[name] for name in _OF_ARRAYS}
