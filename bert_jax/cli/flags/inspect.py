"""The flags of `bert-jax inspect`."""

import dataclasses
from typing import Annotated

import tyro

from data_pipeline.checks import check_not_negative, check_seed
from data_pipeline.errors import UserError
from data_pipeline.names import Split

_NOT_OF_A_STEP = (
    "split",
    "max_seq_length",
    "max_predictions_per_seq",
    "max_instances_per_row",
    "sequences",
    "seed",
)


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Check a prepared corpus and show what training on it sees.

    Compares what the settings of an experiment promise with what its first batches hold, and shows
    a few examples, in which a token to predict appears as [was→now]. Can also show the batch of any
    step of a run.
    """

    corpus: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")]
    """Directory made by `bert-jax prepare`, or the work directory of a run, for its corpus and settings."""
    experiment: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Experiment whose data settings are used, by default `base`; `bert-jax experiments` lists them, and
    module:NAME is one of your own."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Show only the batch of the run's step N; the first step is 0."""
    split: Split = "train"
    """Training documents, or held-out ones."""
    max_seq_length: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Show this sequence length alone, instead of the experiment's phases."""
    max_predictions_per_seq: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Slots for predictions at that length; by default as many as the masking rate asks for."""
    max_instances_per_row: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Maximum number of sequences packed into one row; 1 disables packing. Default: as in the experiment."""
    sequences: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
    """Rows to draw for the statistics, rounded up to a multiple of 256."""
    examples: Annotated[int, tyro.conf.arg(metavar="N")] = 3
    """Rows to show, of the first phase or of the step."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Seed of the batches; by default that of the experiment or the run."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed("--seed", self.seed)
        check_not_negative("--sequences", self.sequences)
        check_not_negative("--examples", self.examples)
        given = (name for name in _NOT_OF_A_STEP if getattr(self, name) != getattr(Inspect, name))
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        if flags and self.step is not None:
            raise UserError(f"--step shows what the run was given; leave {flags} out")
