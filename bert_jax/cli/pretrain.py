"""`bert-jax pretrain EXPERIMENT --workdir DIR`: trains, or resumes where an earlier run stopped.

This module reads the flags; what they start is `bert_jax.cli.pretraining_run`.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.cli.flags import given_flags, list_names, parse_flags, take_name
from bert_jax.config import Experiment, check_positive
from data_pipeline.errors import UserError

_HELP = """\
usage: bert-jax pretrain EXPERIMENT --workdir DIR [FLAGS]

Train a named experiment. Run the same command again to resume where it stopped.

  bert-jax pretrain quickstart --workdir runs/quickstart
  bert-jax pretrain base --workdir runs/base --data.corpus corpora/wiki

Any setting of the experiment can be changed by a flag, for example
--model.num-layers 6. `bert-jax pretrain EXPERIMENT --help` lists the flags
with the values that the experiment gives them.

Ctrl-C and SIGTERM save a checkpoint and end with status 75: run the same
command again to resume. A second Ctrl-C ends at once.

On a TPU slice, or a cluster, run the same command with --distributed on every
host.

experiments (`bert-jax experiments` shows their sizes):
"""


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a named experiment; the flags change its settings.

    Run the same command again to resume where it stopped. Ctrl-C and SIGTERM save a checkpoint and
    end with status 75. NaN or infinity ends the run with status 1; the last good checkpoint stays.
    """

    name: tyro.conf.Suppress[str]
    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the run: checkpoints, metrics.jsonl, TensorBoard curves, config.json."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="MODEL")] = None
    """Start with a model's parameters instead of random ones. MODEL is the
    work directory of a run, an export, a Hugging Face BERT or
    google-research/bert's. The experiment takes the model's shape. The
    corpus must have the model's vocabulary, to which tokens may be
    appended: their rows are drawn from the seed."""
    branch_from: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue from the newest checkpoint of the run in DIR, with its
    optimizer moments and step, but with other settings. The sizes of the
    model and the optimizer must be the same."""
    branch_step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint to branch from, instead of the newest."""
    profile: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Number of steps to record with jax's profiler, beginning with the
    third step after the start."""
    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """This process is one of several that form one run, all started with
    the same command. jax finds the others on Cloud TPU, SLURM, Kubernetes
    and Open MPI; elsewhere set JAX_COORDINATOR_ADDRESS (host:port of
    process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID. The work directory
    must be the same folder for all."""

    given: tyro.conf.Suppress[frozenset[str]] = frozenset()
    """Names of the fields that flags set, even to their default values."""

    def __post_init__(self) -> None:
        if self.profile is not None:
            check_positive("--profile", self.profile)
        if self.branch_from is not None and self.init_from is not None:
            raise UserError("give --branch-from or --init-from, not both")
        if self.branch_step is not None and self.branch_from is None:
            raise UserError("--branch-step goes with --branch-from only")


def parse(argv: Sequence[str]) -> Pretrain:
    """Reads the command line; the experiment's name comes first and gives the defaults.

    Raises:
      UserError: unknown experiment, unknown flag, impossible value.
    """
    from experiments import EXPERIMENTS, SUMMARIES

    page = _HELP + list_names(SUMMARIES)
    usage = "bert-jax pretrain EXPERIMENT --workdir DIR; `bert-jax experiments` lists them"
    name = take_name(argv, EXPERIMENTS, what="experiment", usage=usage, page=page)
    default = Pretrain(name=name, workdir=tyro.MISSING_NONPROP, experiment=EXPERIMENTS[name])
    args = parse_flags(Pretrain, argv[1:], command=f"bert-jax pretrain {name}", default=default)
    return dataclasses.replace(args, given=given_flags(argv))


def run(args: Pretrain) -> int:
    """Trains. Returns 0, or 75 if the run was interrupted and saved, or 1 if it met NaN.

    For the other exit statuses of a distributed process see `bert_jax.parallel.processes`.
    """
    if not args.experiment.data.corpus:
        raise UserError(
            "no corpus: pass --data.corpus DIR; `bert-jax prepare` makes one from text, and "
            "`bert-jax pretrain quickstart` needs none"
        )
    from bert_jax.training.speed import StartClock

    clock = StartClock(functools.partial(print, flush=True))  # before the imports, which take seconds
    from bert_jax.cli import pretraining_run

    return pretraining_run.run(args, clock)
