"""The arguments of a pretraining run, which `bert-jax pretrain` reads from flags."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.initial_shape import InitialModel
from data_pipeline.checks import check_positive
from data_pipeline.errors import UserError

OBJECTIVE_HELP = (
    f"What to learn, with the attention, pairs and masks that it needs: {', '.join(OBJECTIVES)}, or one of "
    f"your own, module:Class, from the working directory or an installed package."
)


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a named experiment; the flags change its settings.

    Run the same command again to resume where it stopped. Ctrl-C and SIGTERM save a checkpoint and
    end with status 75. NaN or infinity ends the run with status 1; a checkpoint from before it stays.
    """

    name: tyro.conf.Suppress[str]
    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Directory of the run: checkpoints, metrics.jsonl, TensorBoard curves, config.json."""
    objective: Annotated[str, tyro.conf.arg(metavar="NAME", help=OBJECTIVE_HELP)]
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="MODEL")] = None
    """Start with a model's parameters instead of random ones. MODEL is the
    work directory of a run, an export, a Hugging Face BERT, RoBERTa or
    another of its families, or google-research/bert's. The experiment takes
    the model's shape. The corpus must have the model's vocabulary, to which
    tokens may be appended: their rows are drawn from the seed. With a larger
    --model.max-position-embeddings, its learned positions are repeated;
    --model.rotary-base may differ from the model's."""
    branch_from: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue from the newest checkpoint of the run in DIR, with its
    optimizer moments and step, but with other settings. The sizes and parts of
    the model, the optimizer and the arrays of the objective must be the same."""
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
    must be the same directory for all."""
    check_flags: Annotated[int | None, tyro.conf.arg(metavar="DEVICES")] = None
    """Check the flags for a run on so many devices and exit, with status 0 if
    they are valid. No device, corpus or work directory is looked at."""

    given: tyro.conf.Suppress[frozenset[str]] = frozenset()
    """Names of the fields that flags set, even to their default values."""
    initial: tyro.conf.Suppress[InitialModel | None] = None
    """The model that the run begins from, or began from, once that is known."""
    began: tyro.conf.Suppress[float] = dataclasses.field(default_factory=time.perf_counter)
    """When the command began, on the clock of `time.perf_counter`."""

    def __post_init__(self) -> None:
        if self.profile is not None:
            check_positive("--profile", self.profile)
        if self.check_flags is not None:
            check_positive("--check-flags", self.check_flags)
        if self.branch_from is not None and self.init_from is not None:
            raise UserError("give --branch-from or --init-from, not both")
        if self.branch_step is not None and self.branch_from is None:
            raise UserError("--branch-step goes with --branch-from only")
