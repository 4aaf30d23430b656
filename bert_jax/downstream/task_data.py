"""What a task of `bert-jax finetune` gives the training of a model, and what it does with outputs."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from data_pipeline.atomic import atomically

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.finetuning.config import HeadKind
    from bert_jax.finetuning.record import FineTuningRecord
    from data_pipeline.tasks.encode import TaskTokenizer
    from data_pipeline.tasks.rows import Rows

Apply: TypeAlias = "Callable[[Rows], Iterator[tuple[np.ndarray, np.ndarray]]]"
"""Rows -> numbers int32 [R] of some rows and the model's outputs [R, ...] for them, until all came."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a trained model came to."""

    figures: Mapping[str, float]
    """As `TaskData.evaluate`; and those of test sets with labels, which choose nothing."""
    degenerate: str | None
    """One sentence if the model says the same of every example of the development set, or diverged."""
    learnt: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What was tuned on the development set and predicting has to know, such as a threshold."""
    examples: Sequence[Mapping[str, str]] = ()
    """Rows of a table of predictions worth seeing, such as the best answers to a few queries."""


@dataclasses.dataclass(frozen=True, eq=False)
class AppliedModel:
    """A fine-tuned model as a task predicts with it."""

    record: "FineTuningRecord"
    tokenizer: "Tokenizer"
    apply: Apply

    @functools.cached_property
    def plain_tokenizer(self) -> "TaskTokenizer":
        """As the tasks of texts use it; made once, which takes as long as many texts."""
        from data_pipeline.tasks.encode import make_task_tokenizer

        return make_task_tokenizer(self.tokenizer)


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """What `bert-jax predict` asks of a task."""

    model: AppliedModel
    input: Path
    output: Path
    """A file that appears whole or not at all."""

    def write_text(self, parts: Iterable[Sequence[str]]) -> int:
        """Writes texts part by part; how many they were."""
        count = 0
        with atomically(self.output) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            for texts in parts:
                file.writelines(texts)
                count += len(texts)
        return count


def join_figures(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The figures of all parts; those of others than `dev` carry the name of their part."""
    return {
        name if part == "dev" else f"{part}_{name}": value
        for part, figures in parts.items()
        for name, value in figures.items()
    }


class TaskData(Protocol):
    """A data set in rows, for one kind of head."""

    @property
    def kind(self) -> "HeadKind":
        """Kind of head that the model gets."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Words of the classes or tags, in the order of the model's outputs; empty where there are none."""
        ...

    @property
    def metric(self) -> str:
        """Which figure of `evaluate` the best run is chosen by; higher is better."""
        ...

    @property
    def train(self) -> "Rows":
        """What to train on."""
        ...

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """What to evaluate and predict, by the names of the parts: dev, test, ..."""
        ...

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, with all that it is scored by."""
        ...

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test sets, with all that their predictions come from; empty if there are none."""
        ...

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Figures on the development set."""
        ...

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """Evaluates once more and writes predictions of the development and test sets."""
        ...
