"""The flags of `bert-jax evaluate`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """Data to evaluate on."""

    corpus: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Corpus whose held-out documents are used; by default that of the run."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a checkpoint of a run on held-out documents, always with the same pairs and masks.

    Prints the metrics for each phase of the run and writes them to WORKDIR/evaluation-STEP.json, which
    keeps those of other corpora. Beside each accuracy is that of always guessing the most frequent label
    (`guess`). Uses all devices of this machine, however many the run had.
    """

    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Directory of the run."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint; the newest by default."""
    data: EvaluationData = EvaluationData()
    eval_examples: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Most sequences to evaluate on, for each phase; by default as in the run."""
