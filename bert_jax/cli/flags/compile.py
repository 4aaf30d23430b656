"""The flags of `bert-jax compile`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.cli.experiment_argument import take_experiment
from bert_jax.cli.parsing import list_names, parse_flags
from bert_jax.objectives import objective_name
from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.arguments import OBJECTIVE_HELP
from data_pipeline.errors import UserError
from experiments import SUMMARIES

_HELP = """\
usage: bert-jax compile EXPERIMENT --topology CHIP:SHAPE [FLAGS]

Compile the training step of a named experiment for a TPU slice, with the real
TPU compiler but without the slice, and show what it says: memory of a chip,
arithmetic, estimated cycles, exchanges between chips. Takes minutes.

  pip install -c constraints.txt -e '.[tpu]'
  bert-jax compile base --topology v5e:4x4
  bert-jax compile large --topology v5p:2x2x2 --phase 1 --largest-batch

chips: v4, v5e, v5p, v6e, tpu7x. Any setting of the experiment can be changed by
a flag; `bert-jax compile EXPERIMENT --help` lists them.

experiments (`bert-jax experiments` shows their sizes):
"""


@dataclasses.dataclass(frozen=True)
class Compile:
    """Compile an experiment's training step for a TPU slice and show what the compiler says.

    Cycles are the sum of the compiler's estimates. Operations that it has no estimate for are left out and
    listed, random bits among them. The time of exchanges between chips is added: the bytes that a chip sends,
    divided by the speed of its links, minus the time in which it computes meanwhile.
    """

    name: tyro.conf.Suppress[str]
    topology: Annotated[str, tyro.conf.arg(metavar="CHIP:SHAPE")]
    """Chip and shape of the slice, such as v5e:4x4 or v5p:2x2x4."""
    objective: Annotated[str, tyro.conf.arg(metavar="NAME", help=OBJECTIVE_HELP)]
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    phase: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Phase of the experiment to compile; 0 is the first."""
    batch_per_chip: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Sequences per chip, on TPU7x per device (half a chip); replaces --global-batch-size."""
    largest_batch: tyro.conf.FlagCreatePairsOff[bool] = False
    """Find the largest batch that fits, per chip or device: a multiple of 8 sequences, or else 4, 2 or 1."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the report to this JSON file."""

    def __post_init__(self) -> None:
        if self.largest_batch and self.batch_per_chip is not None:
            raise UserError("--largest-batch finds --batch-per-chip; give one of the two")


def parse(argv: Sequence[str]) -> Compile:
    """Reads the command line; the experiment's name comes first and gives the defaults.

    Raises:
      UserError: unknown experiment, unknown flag, impossible value.
    """
    page = _HELP + list_names(SUMMARIES)
    usage = "bert-jax compile EXPERIMENT --topology CHIP:SHAPE; `bert-jax experiments` lists them"
    name, experiment = take_experiment(argv, usage=usage, page=page)
    default = Compile(name, tyro.MISSING_NONPROP, objective_name(experiment.objective), experiment)
    return parse_flags(Compile, argv[1:], command=f"bert-jax compile {name}", default=default)
