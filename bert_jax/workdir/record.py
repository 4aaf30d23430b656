"""`config.json` of a run's directory: the experiment, its corpus, and every start of the run.

A directory belongs to one experiment on one corpus. Running the same command again resumes the run. A
command with other settings is refused and the differences are shown, except for those in `MAY_CHANGE`.
Checkpoints that one start asked to keep are kept by all later ones.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.objectives.experiment import Experiment
from bert_jax.retention import Kept
from bert_jax.workdir.config_text import differences, flatten, from_json, to_json
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json
from data_pipeline.stand_in import bucket_of

CONFIG_FILE = "config.json"

# These may change because a phase of longer sequences, or another machine, may leave less memory.
PARALLEL_MAY_CHANGE = frozenset(
    f"parallel.{name}" for name in ("mode", "fsdp", "tensor", "accumulation_steps", "remat")
)

MAY_CHANGE = PARALLEL_MAY_CHANGE | frozenset(
    (
        "num_train_steps",
        "log_every",
        "eval_every",
        "eval_examples",
        "checkpoint_every",
        "keep_checkpoints",
        "keep_every",
        "model.attention_kernel",
        # The corpus may move; its content is compared by fingerprint.
        "data.corpus",
    )
)


_Run: TypeAlias = Experiment | FineTuningConfig


@dataclasses.dataclass(frozen=True)
class BranchPoint:
    """Where a run branched from another one."""

    run: str = ""
    """Name of the other run's directory; empty if this run began at step 0."""
    step: int = 0

    def __str__(self) -> str:
        return f"{self.run} at step {self.step}"


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The content of `config.json`."""

    experiment_name: str
    experiment: Experiment
    corpus_fingerprint: str
    """Hash of the corpus's tokens and vocabulary, whatever its path."""
    starts: tuple[dict[str, Any], ...] = ()
    """One entry for each time the command was run: versions, git state, devices, command."""
    init_from: str = ""
    """Name of the model whose parameters it started from; empty if they were drawn at random."""
    init_fingerprint: str = ""
    """Hash of that model's parameters."""
    branched_from: BranchPoint = BranchPoint()
    kept: Kept = Kept()
    """The checkpoints that this start or an earlier one asked to keep."""

    @property
    def initial_model(self) -> str:
        """The model that it started from, for messages."""
        return f"{self.init_from} ({self.init_fingerprint[:12]})" if self.init_from else "unset"


def read_record(workdir: Path) -> RunRecord:
    """Reads `config.json` of a run's directory.

    Raises:
      UserError: the directory is not that of a run, or its config.json cannot be read.
    """
    path = workdir / CONFIG_FILE
    if not workdir.exists():
        raise UserError(f"there is no directory {workdir}; name the work directory of a run")
    if not path.exists():
        raise UserError(f"{workdir} is not the work directory of a run: it has no {CONFIG_FILE}")
    try:
        content = load_json(path)
        if isinstance(content, dict) and "experiment" not in content:
            raise UserError(
                f"{workdir} is not the work directory of a run: its {CONFIG_FILE} is that of something else, "
                "such as a model"
            )
        return from_json(RunRecord, content)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise bad_input(
            error, path, f"{path} is not a run's {CONFIG_FILE}, or of another version of bert-jax: {error}"
        ) from None


def write_record(workdir: Path, record: RunRecord) -> None:
    """Writes `config.json`."""
    write_json(workdir / CONFIG_FILE, to_json(record))


def check_last_start(workdir: Path, start: Mapping[str, Any]) -> None:
    """Raises UserError if `start` is no longer the run's last start.

    Another machine can take a run over because locks on a mounted bucket are not seen by other machines.
    """
    if bucket_of(workdir):
        return  # its lease tells, and the copies of processes other than 0 lack this start
    last = read_record(workdir).starts[-1]
    if last != start:
        raise UserError(
            f"work directory {workdir} was taken over by a start on {last['host']} at {last['time']}; "
            f"this one saves nothing more"
        )


def check_same_run(workdir: Path, before: RunRecord, now: RunRecord, step: int) -> None:
    """Checks that a run can be resumed from `step`: same settings, same corpus, same initial model.

    Raises:
      UserError: settings differ, each named as `setting before -> now`; the run is already beyond the new
        number of steps; or that number would move the end of a phase among the steps already done.
    """
    changes = differences(flatten(before.experiment), flatten(now.experiment), MAY_CHANGE)
    if before.corpus_fingerprint != now.corpus_fingerprint:
        changes.append("the text or the vocabulary of data.corpus changed")
    if before.init_fingerprint != now.init_fingerprint:
        changes.append(f"--init-from {before.initial_model} -> {now.initial_model}")
    if changes:
        raise UserError(
            f"{workdir} holds a run of {before.experiment_name} with other settings: "
            f"{'; '.join(changes)}; undo these changes, or give another --workdir"
        )
    if step > now.experiment.num_train_steps:
        raise UserError(
            f"{workdir} is at step {step}, beyond num_train_steps {now.experiment.num_train_steps}; "
            f"give a larger --num-train-steps, or name another --workdir"
        )
    _check_phases(workdir, before.experiment, now.experiment, step)


def _check_phases(workdir: Path, before: Experiment, now: Experiment, step: int) -> None:
    """Raises UserError if a finished step would now be of another phase or batch size, so that text would
    repeat."""
    olds, news = ([s for s in run.stretches if s.start < min(s.stop, step)] for run in (before, now))
    for old, new in zip(olds, news, strict=False):  # both cover these steps, so a difference shows here
        same = (old.number, old.batch_size) == (new.number, new.batch_size)
        if not same or min(old.stop, step) != min(new.stop, step):
            batches = f" and its batches of {old.batch_size} rows" if before.data.batch_schedule else ""
            raise UserError(
                f"num_train_steps {before.num_train_steps} -> {now.num_train_steps} would end phase "
                f"{old.number}{batches} at step {new.stop} instead of {old.stop}, but {workdir} is at step "
                f"{step}; give --num-train-steps {before.num_train_steps}, or name another --workdir"
            )


def describe_kept(kept: Kept, now: Experiment) -> list[str]:
    """One line if more checkpoints are kept than this start asks for."""
    if kept == Kept.asked_for_by(now):
        return []
    newest = "newest checkpoint" if kept.newest == 1 else f"{kept.newest} newest checkpoints"
    series = "".join(f" and those of all steps that {steps} divides" for steps in kept.every)
    return [
        f"note: with what earlier starts asked for, the run keeps the {newest}{series}; to keep fewer, "
        f"change `kept` in {CONFIG_FILE}"
    ]


def describe_changes(before: Experiment, now: Experiment) -> list[str]:
    """One-line notes on how changed settings affect the rest of a run; empty if nothing changed."""
    lines = []
    if before.num_train_steps != now.num_train_steps:
        ends = ", ".join(str(stretch.stop) for stretch in now.stretches)
        what = "phases and batch sizes" if now.data.batch_schedule else "phases"
        is_masking_fixed = now.data.masking.last_rate is None
        rates = "learning rate is that" if is_masking_fixed else "learning and masking rates are those"
        lines.append(
            f"note: num_train_steps {before.num_train_steps} -> {now.num_train_steps}: from here on the "
            f"{rates} of the new schedule, whose {what} end at {ends}"
        )
    return lines + describe_layout_changes(before, now)


def describe_layout_changes(before: _Run, now: _Run) -> list[str]:
    """As `describe_changes`, for the settings of parallelism and the attention kernel."""
    layout = differences(_how_computed(before), _how_computed(now), ())
    if not layout:
        return []
    dropout = max(now.model.dropout_rate, now.model.attention_dropout_rate) > 0
    redrawn = dropout and _decides_dropout(before) != _decides_dropout(now)
    how = "dropout draws other bits" if redrawn else "sums are rounded otherwise"
    return [f"note: {'; '.join(layout)}: the run goes on, but not bit for bit: {how}"]


def _how_computed(run: _Run) -> dict[str, Any]:
    kernel = {"model.attention_kernel": run.model.attention_kernel}
    return flatten(run.parallel, "parallel") | kernel


def _decides_dropout(run: _Run) -> tuple[str | int, ...]:
    # With rbg each device draws bits for its own rows, so it matters how many devices share a row. Each
    # micro-batch draws its own bits with either generator.
    sharing = run.parallel.tensor if run.parallel.prng == "rbg" else 1
    return run.parallel.mode, sharing, run.parallel.accumulation_steps, run.model.attention_kernel
