"""The start of a run: checked against its work directory, recorded there, begun, resumed or branched.

A run that branches continues from another run's checkpoint (params, moments, step) with new settings. This
serves to try another learning rate, seed or number of steps, or to train past a NaN.
"""

import dataclasses
import functools
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from bert_jax.model_config import MODEL_PARTS, MODEL_SIZES, OPTIONAL_SIZES
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel import processes
from bert_jax.pretraining.data import check_same_vocabulary
from bert_jax.pretraining.initial_shape import InitialModel
from bert_jax.retention import Kept
from bert_jax.training.checkpoint_files import DIRECTORY, files_of
from bert_jax.training.checkpoints import find_checkpoint, saved_steps
from bert_jax.training.metric_log import METRICS_FILE, TENSORBOARD_DIRECTORY
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.train_step import init_state
from bert_jax.workdir import directory, record
from bert_jax.workdir.config_text import differences, flatten, from_json, to_json
from bert_jax.workdir.grid import TRIALS_DIRECTORY
from bert_jax.workdir.provenance import code, describe_code_changes, this_start
from bert_jax.workdir.record import CONFIG_FILE, MAY_CHANGE, BranchPoint, RunRecord, read_record
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.store import Description
from data_pipeline.corpus.vocabulary_file import TOKENIZER_DIRECTORY
from data_pipeline.errors import UserError
from data_pipeline.stand_in import bucket_of, with_urls

# A run writes these after its config.json, so in a directory without that file they are not a run's.
_WRITTEN = (TOKENIZER_DIRECTORY, METRICS_FILE, TENSORBOARD_DIRECTORY, DIRECTORY)

# Settings that must stay as they are even if the state has the same arrays.
_FIXED = (*(f"model.{name}" for name in (*MODEL_SIZES, *OPTIONAL_SIZES, *MODEL_PARTS)), "optimizer.name")
# Settings of which some values change the arrays: other sums, other heads, other dtypes.
_OF_ARRAYS = ("model.pooler", "objective", "optimizer.moment_dtype")


@dataclasses.dataclass(frozen=True)
class Origin:
    """A checkpoint to branch from."""

    workdir: Path
    step: int
    record: RunRecord

    @property
    def point(self) -> BranchPoint:
        """What a record says of it."""
        return BranchPoint(_name(self.workdir), self.step)


def check_same_command(name: str, workdir: Path, experiment: Experiment) -> None:
    """Raises UserError if the processes of the run were started with different settings or code."""

    def identity() -> dict[str, Any]:
        settings = flatten(experiment)
        del settings["data.corpus"]  # the path may differ; the content is compared by fingerprint
        same = {"experiment": name, "--workdir": str(bucket_of(workdir) or workdir)}
        return {**same, **settings, **code(this_start())}

    processes.check_same(identity, "start all with the same command, code and packages")


def check_workdir(workdir: Path, corpus: str) -> None:
    """Raises UserError if the work directory is something else's, such as that of `corpus`."""
    if corpus != INSTALLED_DOCUMENTATION:
        directory.check_apart(workdir, corpus)
    if (workdir / TRIALS_DIRECTORY).exists():
        raise UserError(f"--workdir {workdir} holds fine-tuned models; name another directory")
    if (workdir / CONFIG_FILE).exists():
        read_record(workdir)
    elif found := [name for name in _WRITTEN if os.path.lexists(workdir / name)]:
        raise UserError(
            f"work directory {workdir} holds {', '.join(found)} but no {CONFIG_FILE}, so it is not that of a "
            f"run; name another directory"
        )


def make_record(
    name: str, experiment: Experiment, corpus: Description, initial: InitialModel | None
) -> RunRecord:
    """Returns the record of this run, not yet written, with this start as its only one."""
    # Other machines must find the corpus too.
    data = dataclasses.replace(experiment.data, corpus=with_urls(experiment.data.corpus))
    return RunRecord(
        name,
        dataclasses.replace(experiment, data=data),
        corpus_fingerprint=corpus.fingerprint,
        init_from=initial.name if initial else "",
        init_fingerprint=initial.fingerprint if initial else "",
        starts=(this_start(),),
        kept=Kept.asked_for_by(experiment),
    )


def check_same_input(now: RunRecord) -> None:
    """Raises UserError if the processes of the run were given different corpora or initial models."""
    processes.check_same(
        lambda: {
            "fingerprint of data.corpus": now.corpus_fingerprint,
            "fingerprint of --init-from": now.init_fingerprint,
        },
        "give all of them the same text, vocabulary and model",
    )


def begin_or_resume(
    workdir: Path,
    now: RunRecord,
    corpus: Description,
    branch_from: Path | None,
    branch_step: int | None,
) -> tuple[dict[str, Any], Kept]:
    """Records this start in the work directory, by process 0.

    Args:
      now: the record of `make_record`.
      branch_from: work directory of the run to branch from; None for none.
      branch_step: step of the checkpoint to branch from; None for the newest.

    Returns:
      This start's entry in the record, and the checkpoints that it or an earlier one asked to keep.

    Raises:
      UserError: the work directory holds another run, or a branch that has no checkpoint to resume from; or
        the checkpoint to branch from does not fit.
    """

    def record_start() -> dict[str, Any]:
        before = read_record(workdir) if (workdir / CONFIG_FILE).exists() else None
        if before and (steps := saved_steps(workdir)):
            record.check_same_run(workdir, before, now, steps[-1])
            if branch_from is not None:
                check_same_origin(workdir, before.branched_from, branch_from, branch_step)
            recorded = _resume(workdir, before, now)
        else:
            origin = None
            if branch_from is None:
                _check_begins_at_zero(workdir, before, now)
            else:
                origin = find_origin(branch_from, branch_step, now)
            if before and before.corpus_fingerprint != now.corpus_fingerprint:
                directory.remove_tokenizer(workdir)
            recorded = _begin(workdir, corpus, origin, now)
        return {"start": recorded.starts[-1], "kept": to_json(recorded.kept)}

    told = processes.broadcast_from_first(record_start)
    return told["start"], from_json(Kept, told["kept"])


def _begin(workdir: Path, corpus: Description, origin: Origin | None, now: RunRecord) -> RunRecord:
    """Makes the work directory that of a run: its record, its tokenizer, the checkpoint it branches from."""
    if origin is not None:
        check_same_vocabulary(corpus, origin.workdir, origin.record)
        now = dataclasses.replace(now, branched_from=origin.point)
    # Written first, because this file marks the rest of the directory as a run's.
    record.write_record(workdir, now)
    directory.copy_tokenizer(corpus.path, workdir)
    if origin is not None:  # last, so that a start killed before this point is repeated in full
        before, unimportant = origin.record.experiment, MAY_CHANGE - {"num_train_steps"}
        changed = differences(flatten(before), flatten(now.experiment), unimportant)
        print("; ".join([f"branched from {origin.point}", *changed]), flush=True)
        copy_state(origin, workdir)
    return now


def _resume(workdir: Path, before: RunRecord, now: RunRecord) -> RunRecord:
    """Adds this start to the record of the run; says what changed since its last."""
    kept = before.kept.union(now.kept)  # a flag left out must not delete what an earlier start kept
    for line in (
        *record.describe_changes(before.experiment, now.experiment),
        *record.describe_kept(kept, now.experiment),
        *describe_code_changes(before.starts[-1], now.starts[-1]),
    ):
        print(line, flush=True)
    starts = (*before.starts, *now.starts)
    now = dataclasses.replace(now, branched_from=before.branched_from, starts=starts, kept=kept)
    record.write_record(workdir, now)
    return now


def find_origin(workdir: Path, step: int | None, now: RunRecord) -> Origin:
    """Finds the checkpoint that a new run branches from, and checks that it fits.

    Args:
      step: step of the checkpoint; None takes the newest.

    Raises:
      UserError: the run or checkpoint does not exist or is damaged; its model, optimizer or objective is
        another one, whose arrays would not fit; the new run has no steps left after that step.
    """
    before = read_record(workdir)
    step = find_checkpoint(workdir, step)
    if changed := _changes_of_state(before.experiment, now.experiment):
        raise UserError(
            f"the state of {workdir} does not fit: {'; '.join(changed)}; undo these changes, or start from "
            "its parameters alone by --init-from"
        )
    if step >= now.experiment.num_train_steps:
        earlier = [saved for saved in saved_steps(workdir) if saved < now.experiment.num_train_steps]
        raise UserError(
            f"{workdir} is at step {step}; give --num-train-steps above that"
            + (f", or --branch-step one of {earlier}" if earlier else "")
        )
    return Origin(workdir, step, before)


def _check_begins_at_zero(workdir: Path, before: RunRecord | None, now: RunRecord) -> None:
    """Raises UserError if a work directory without checkpoints is that of a branch, or of a run from a model.

    Without the flag that says so, it would begin from new parameters, though its first start said otherwise.
    """
    if before and before.branched_from.run:
        began, flag = f"branched from {before.branched_from}", "--branch-from"
    elif before and before.init_from and not now.init_from:
        began, flag = f"starts from {before.init_from}", "--init-from"
    else:
        return
    raise UserError(
        f"{workdir} holds a run that {began} and has no checkpoint; give {flag} to begin it there again, or "
        "another --workdir"
    )


def check_same_origin(
    workdir: Path, branched_from: BranchPoint, branch_from: Path, branch_step: int | None
) -> None:
    """Checks that a run branched from --branch-from, which may be gone, at --branch-step (None: any).

    Raises:
      UserError: they differ; it names both.
    """
    name = _name(branch_from)
    if branched_from.run == name and branch_step in (None, branched_from.step):
        return
    began = f"branched from {branched_from}" if branched_from.run else "began at step 0"
    wanted = name if branch_step is None else BranchPoint(name, branch_step)
    raise UserError(
        f"{workdir} holds a run that {began}, not one from {wanted} of --branch-from; leave that out to "
        f"resume it, or give another --workdir"
    )


def _name(workdir: Path) -> str:
    return workdir.resolve().name


def copy_state(origin: Origin, workdir: Path) -> None:
    """Copies metrics.jsonl and then the checkpoint into a work directory that has no checkpoints."""
    if (origin.workdir / METRICS_FILE).exists():
        shutil.copyfile(origin.workdir / METRICS_FILE, workdir / METRICS_FILE)
    files = files_of(workdir)
    files.tidy()  # a branch may have been killed in its first save
    with files_of(origin.workdir).here(origin.step) as checkpoint:
        files.take(origin.step, checkpoint)


def _changes_of_state(before: Experiment, now: Experiment) -> list[str]:
    """`setting before -> now` for each setting because of which a state of `before` is not one of `now`."""

    def chosen(experiment: Experiment, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name, value in flatten(experiment).items() if name.startswith(names)}

    changed = differences(chosen(before, _FIXED), chosen(now, _FIXED), ())
    if not changed and _arrays(before) != _arrays(now):
        changed = differences(chosen(before, _OF_ARRAYS), chosen(now, _OF_ARRAYS), ())
    return changed


def _arrays(experiment: Experiment) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Path -> shape and dtype of each array of a state."""
    task = PretrainingTask(experiment.objective, experiment.model)
    init = functools.partial(init_state, task, make_optimizer(experiment.optimizer))
    leaves, _ = tree_flatten_with_path(jax.eval_shape(init, np.uint32(0)))
    return {keystr(path): (leaf.shape, leaf.dtype) for path, leaf in leaves}
