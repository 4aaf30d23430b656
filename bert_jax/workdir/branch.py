"""A run that goes on from a checkpoint of another one with other settings: parameters, moments and step.

So a stretch of training can be tried with another learning rate, seed or number of steps, and a run that
met NaN goes round it.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from bert_jax.config import MODEL_SIZES
from bert_jax.config_text import differences, flatten
from bert_jax.training.checkpoints import FOLDER, find_checkpoint, saved_steps
from bert_jax.training.metric_log import METRICS_FILE
from bert_jax.workdir.record import MAY_CHANGE, RunRecord, read_record
from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError

# The settings that decide which arrays a state has.
_AT_STEP = " at step "
_OF_ARRAYS = (*(f"model.{name}" for name in MODEL_SIZES), "optimizer.name")


@dataclasses.dataclass(frozen=True)
class Origin:
    """A checkpoint to go on from."""

    workdir: Path
    step: int
    folder: Path
    """Of the checkpoint."""
    record: RunRecord

    def __str__(self) -> str:
        return f"{_name(self.workdir)}{_AT_STEP}{self.step}"

    def differences(self, now: RunRecord) -> list[str]:
        """`setting before -> now` for each setting that decides results and is another."""
        unimportant = MAY_CHANGE - {"num_train_steps"}
        return differences(flatten(self.record.experiment), flatten(now.experiment), unimportant)


def find_origin(workdir: Path, step: int | None, now: RunRecord) -> Origin:
    """The checkpoint of a run that another one can go on from.

    Args:
      workdir: of the run that has the checkpoint.
      step: the checkpoint's; None takes the newest.
      now: of the run that is to go on.

    Raises:
      UserError: no such run or checkpoint, or a damaged one; another model or optimizer, whose arrays would
        not fit; the new run ends before that step.
    """
    record = read_record(workdir)
    step, folder = find_checkpoint(workdir, step)
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
    return Origin(workdir, step, folder, record)


def check_same_origin(folder: Path, branched_from: str, workdir: Path, step: int | None) -> None:
    """Compares what a run went on from with what it is asked to; the origin itself may be gone.

    Args:
      folder: of the run.
      branched_from: as its record has it.
      workdir: of the run that it is to have gone on from.
      step: of the checkpoint there; None is any.

    Raises:
      UserError: they differ, with both named.
    """
    name, _, at = branched_from.rpartition(_AT_STEP)
    if name == _name(workdir) and (step is None or at == str(step)):
        return
    began = f"branched from {branched_from}" if branched_from else "began at step 0"
    wanted = _name(workdir) + ("" if step is None else f"{_AT_STEP}{step}")
    raise UserError(
        f"{folder} holds a run that {began}, not one from {wanted} of --branch-from; leave that out to go on "
        f"with it, or give another --workdir"
    )


def _name(workdir: Path) -> str:
    return workdir.resolve().name


def copy_state(origin: Origin, workdir: Path) -> None:
    """Puts the checkpoint into a work directory that has none, and the curves up to it before."""
    if (origin.workdir / METRICS_FILE).exists():
        shutil.copyfile(origin.workdir / METRICS_FILE, workdir / METRICS_FILE)
    with atomically(workdir / FOLDER) as partial:
        shutil.copytree(origin.folder, partial / str(origin.step))


def _of_arrays(record: RunRecord) -> dict[str, Any]:
    settings = flatten(record.experiment)
    return {name: settings[name] for name in _OF_ARRAYS}
