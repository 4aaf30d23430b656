"""The arguments of a study, which `bert-jax study` reads from flags."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.initial_shape import InitialModel
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
    """Directory of the study: runs in ARM/seed-N, report.html, results.csv, ..."""
    scale: str
    """How much to spend."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    file: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Python file that defines the study; it is read before the other flags."""
    corpus: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Directory made by `bert-jax prepare`; a scale may bring its own."""
    tasks: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Directory with a directory for each data set; a scale may bring its own."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of pretraining seeds; by default that of the scale."""
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="MODEL")] = None
    """Start every pretraining with the parameters of a model, whose shape the
    arms take, as by `bert-jax pretrain --init-from`. The corpus must have its
    vocabulary."""
    arms: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ARM")] = ()
    """Names of the arms to run and report, together with the base and the
    arms that they are compared with; by default all."""
    budget_flops: Annotated[float | None, tyro.conf.arg(metavar="FLOPS")] = None
    """Floating-point operations of each pretraining; its steps and warm-up
    follow from them."""
    budget_hours: Annotated[float | None, tyro.conf.arg(metavar="HOURS")] = None
    """Hours of each pretraining on the devices at hand, approximately: the
    speed of each arm is measured once, and its steps and warm-up follow from
    it."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of worker processes; by default one for each CPU core, as far as
    memory allows, or one for each GPU or TPU chip. On a CPU each worker uses
    one core, so that results do not depend on their number."""
    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """This machine is one host of a slice, all of which run this command:
    each pretraining is spread over the chips of all hosts (as by `bert-jax
    pretrain --distributed`), and every chip measures by itself."""
    leave_when_idle: tyro.conf.FlagCreatePairsOff[bool] = False
    """Exit when other workers have taken all remaining jobs, instead of
    waiting in case one of them stops; for machines that are paid by the
    hour."""
    reuse: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR")] = ()
    """Other studies on the same corpus: their finished pretrainings of equal
    settings are copied, not done again."""
    plan: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show the jobs and what they cost, and start none. A study on the
    installed documentation makes its corpus and tasks first."""
    topology: Annotated[str | None, tyro.conf.arg(metavar="CHIP:SHAPE")] = None
    """With --plan: show the TPU compiler's estimate of the hours on a slice,
    such as v5e:4x4, instead of those on this machine."""
    status: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show what is done, under way and left, and start nothing; status 75
    while something is left."""
    report: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write the report of what is done, and start nothing."""
    retry: tyro.conf.FlagCreatePairsOff[bool] = False
    """Try failed jobs again."""
    check_flags: Annotated[int | None, tyro.conf.arg(metavar="DEVICES")] = None
    """Check the flags for a study on so many devices and exit, with status 0
    if they are valid. No device or directory is looked at."""

    given: tyro.conf.Suppress[frozenset[str]] = frozenset()
    """Names of the fields that flags set, even to their default values."""
    initial: tyro.conf.Suppress[InitialModel | None] = None
    """The model of --init-from, once it is read."""
    argv: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The command line after `bert-jax study`, with which workers are started."""

    def __post_init__(self) -> None:
        if self.seeds is not None:
            check_positive("--seeds", self.seeds)
        if self.workers is not None:
            check_positive("--workers", self.workers)
        if self.check_flags is not None:
            check_positive("--check-flags", self.check_flags)
        if self.budget_flops is not None:
            check_above_zero("--budget-flops", self.budget_flops)
        if self.budget_hours is not None:
            check_above_zero("--budget-hours", self.budget_hours)
        if self.budget_flops is not None and self.budget_hours is not None:
            raise UserError("--budget-flops and --budget-hours both set the steps; give one of the two")
        if self.budget_hours is not None and self.distributed:
            raise UserError(
                "--budget-hours measures steps on one machine, and --distributed is one host of several; "
                "give --budget-flops"
            )
        for name, right in (("seed", "--seeds N"), ("data.corpus", "--corpus DIR")):
            if name in self.given:
                raise UserError(f"--{name} is set by the study; give {right}")
        has_budget = self.budget_flops is not None or self.budget_hours is not None
        if has_budget and "num_train_steps" in self.given:
            raise UserError("--num-train-steps and a budget both set the steps; give one of the two")
        if self.plan + self.status + self.report > 1:
            raise UserError("--plan, --status and --report each show one thing; give one of them")
        if self.topology is not None and not self.plan:
            raise UserError("--topology has an effect only with --plan; add --plan")
