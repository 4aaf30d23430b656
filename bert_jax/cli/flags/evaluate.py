"""The flags of `bert-jax evaluate`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.model_config import Activation
from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """Data to evaluate on."""

    corpus: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Corpus whose held-out documents are used; by default that of the run."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a model on held-out documents, always with the same masks.

    With --workdir as in the run's own evaluation: prints the metrics for each phase of the run and writes
    them to WORKDIR/evaluation-STEP.json, which keeps those of other corpora. Beside each accuracy is that of
    always guessing the most frequent label (`guess`). Uses all devices of this machine, however many the run
    had.

    With --model by rules that are the same for all models, whatever masks, pairs and lengths they were
    trained with, so that the numbers compare: prints loss, perplexity and accuracy, with masks as in BERT and
    with [MASK] alone, and bits per byte, which compare between vocabularies too.
    """

    workdir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Directory of the run."""
    model: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """In place of --workdir: any model (a run, an export, a Hugging Face BERT); needs --data.corpus."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint of a run; the newest by default."""
    activation: Activation | None = None
    """Activation of feed-forward layers and heads, if the directory of --model does not name it, or names the
    wrong one. Not with --workdir."""
    data: EvaluationData = EvaluationData()
    eval_examples: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Maximum number of sequences to evaluate on, of each phase; default: as in the run.
    Not with --model."""

    def __post_init__(self) -> None:
        if (self.workdir is None) == (self.model is None):
            raise UserError("give --workdir DIR for a run's own evaluation, or --model DIR to compare models")
        if self.model is not None and not self.data.corpus:
            raise UserError("--model needs --data.corpus DIR, prepared with the model's vocabulary")
        if self.model is not None and self.eval_examples is not None:
            raise UserError("--eval-examples does not go with --model, which always takes the same documents")
        if self.workdir is not None and self.activation is not None:
            raise UserError("--activation does not go with --workdir: a run has the one it was trained with")
