"""The interface of a task of `bert-jax finetune`: the data it trains on, and what it does with outputs."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from bert_jax.finetuning.config import HeadKind
from bert_jax.finetuning.record import FineTuningRecord
from data_pipeline.atomic import atomically

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.encode import TaskTokenizer
    from data_pipeline.tasks.rows import Rows

Apply: TypeAlias = "Callable[[Rows], Iterator[tuple[np.ndarray, np.ndarray]]]"
"""Rows -> batches of row numbers int32 [R] and the model's outputs [R, ...] for them, until all rows came."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of a trained model."""

    figures: Mapping[str, float]
    """Figures as `TaskData.evaluate`, and those of labelled test sets, which are not used to choose a run."""
    degenerate: str | None = None
    """One sentence if the predictions on the development set are all the same."""
    learnt: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Values tuned on the development set that predicting needs, such as a threshold."""
    examples: Sequence[Mapping[str, str]] = ()
    """Rows of a table of predictions to show, such as the best answers to a few queries."""


@dataclasses.dataclass(frozen=True, eq=False)
class AppliedModel:
    """A fine-tuned model that a task predicts with."""

    record: FineTuningRecord
    tokenizer: "Tokenizer"
    apply: Apply

    @functools.cached_property
    def plain_tokenizer(self) -> "TaskTokenizer":
        """The tokenizer that takes special tokens for plain text; cached, as making it is slow."""
        from data_pipeline.tasks.encode import make_task_tokenizer

        return make_task_tokenizer(self.tokenizer)


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """A job of `bert-jax predict`: a model, a file to predict, and the file to write."""

    model: AppliedModel
    input: Path
    output: Path
    """File to write, atomically."""

    def write_text(self, parts: Iterable[Sequence[str]]) -> int:
        """Writes texts part by part, and returns their number."""
        count = 0
        with atomically(self.output) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            for texts in parts:
                file.writelines(texts)
                count += len(texts)
        return count


def join_figures(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The figures of all parts; names begin with that of the part, except for `dev`."""
    return {
        name if part == "dev" else f"{part}_{name}": value
        for part, figures in parts.items()
        for name, value in figures.items()
    }


class TaskData(Protocol):
    """A data set in rows, for one kind of head."""

    @property
    def kind(self) -> HeadKind:
        """Kind of head to put on the model."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Words of the classes or tags, in the order of the model's outputs; empty where there are none."""
        ...

    @property
    def metric(self) -> str:
        """Name of the figure of `evaluate` that the best run is chosen by; higher is better."""
        ...

    @property
    def train(self) -> "Rows":
        """The rows to train on."""
        ...

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The rows to evaluate and predict, by the name of their part: dev, test, ..."""
        ...

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, including its targets and all else that it is scored with."""
        ...

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test sets, including all that predictions depend on; empty if there are none."""
        ...

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Figures on the development set."""
        ...

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """Evaluates once more and writes predictions of the development and test sets."""
        ...
