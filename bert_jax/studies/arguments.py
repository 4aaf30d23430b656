"""The arguments of a study, which `bert-jax study` reads from flags."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Study
from data_pipeline.checks import check_above_zero, check_positive
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class RunStudy:
    """Pretrain and measure the arms of a study, and report what came of it.

    Run the same command again to resume it, also on several machines at once that share the directory: each
    takes the next job that no other does. Flags of the experiment change the settings of all arms.
    """

    study: tyro.conf.Suppress[Study]
    output: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Directory of the study: runs in ARM/seed-N, report.md, report.html, results.csv."""
    scale: str
    """How much to spend."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    corpus: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Directory made by `bert-jax prepare`; a scale may bring its own."""
    tasks: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Directory with a directory for each data set; a scale may bring its own."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of pretraining seeds; None: that of the scale."""
    budget_flops: Annotated[float | None, tyro.conf.arg(metavar="FLOPS")] = None
    """Pretrains every run with as many floating-point operations; steps and
    warm-up follow."""
    budget_hours: Annotated[float | None, tyro.conf.arg(metavar="HOURS")] = None
    """Pretrains every run for about so many hours on the devices at hand: the
    speed of each arm is measured once, and its steps and warm-up follow."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes that work side by side; None: on a CPU one for each core
    that memory allows, on GPUs and TPUs one for each chip that measures. On
    a CPU each computes on one core, so that results do not depend on their
    number."""
    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """This machine is one host of a slice, all of which run this command:
    each pretraining is spread over the chips of all hosts (as by `bert-jax
    pretrain --distributed`), and every chip measures by itself."""
    leave_when_idle: tyro.conf.FlagCreatePairsOff[bool] = False
    """End when other workers have all that is left, in place of waiting to
    take over what they may leave; for machines that cost."""
    reuse: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR")] = ()
    """Other studies on the same corpus: their finished pretrainings of equal
    settings are copied, not done again."""
    plan: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show the jobs and what they cost, and start none."""
    topology: Annotated[str | None, tyro.conf.arg(metavar="CHIP:SHAPE")] = None
    """With --plan: the hours on a TPU slice, such as v5e:4x4, by the TPU
    compiler, in place of those on the devices at hand."""
    status: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show what is done, under way and left, and start nothing; status 75
    while something is left."""
    retry: tyro.conf.FlagCreatePairsOff[bool] = False
    """Try jobs again that failed."""
    check_flags: tyro.conf.FlagCreatePairsOff[bool] = False
    """Check the flags and exit, with status 0 if they are valid; no directory
    is looked at."""

    given: tyro.conf.Suppress[frozenset[str]] = frozenset()
    """Names of the fields that flags set, even to their default values."""
    argv: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The command line after `bert-jax study`, with which workers are started."""

    def __post_init__(self) -> None:
        if self.seeds is not None:
            check_positive("--seeds", self.seeds)
        if self.workers is not None:
            check_positive("--workers", self.workers)
        if self.budget_flops is not None:
            check_above_zero("--budget-flops", self.budget_flops)
        if self.budget_hours is not None:
            check_above_zero("--budget-hours", self.budget_hours)
        if self.budget_flops is not None and self.budget_hours is not None:
            raise UserError("--budget-flops and --budget-hours both set the steps; give one of the two")
        if self.topology is not None and not self.plan:
            raise UserError("--topology is where --plan counts hours; give --plan too")
