"""The interface of a task of `bert-jax finetune`: its data, its head, and its predictions."""

import abc
import codecs
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.task import Metric
from bert_jax.tasks.finetuning.head import Head
from bert_jax.workdir.finetuning import FineTuningRecord
from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, make_task_tokenizer
from data_pipeline.tasks.finetuning.flags import TaskFlags
from data_pipeline.tasks.finetuning.rows import Rows

Apply: TypeAlias = Callable[[Rows], Iterator[tuple[np.ndarray, np.ndarray]]]
"""Rows -> batches of row numbers int32 [R] and the model's outputs [R, ...] for them, until all rows came."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of a trained model."""

    metrics: Mapping[str, float]
    """Those of `TaskData.evaluate`, and those of labelled test sets, which are not used to choose a trial."""
    degenerate: str | None = None
    """One sentence if the predictions on the development set are all the same."""
    learnt: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Values tuned on the development set that predicting needs, such as a threshold."""
    examples: Sequence[Mapping[str, str]] = ()
    """Rows of a table of predictions to show, such as the best answers to a few queries."""
    items: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Name of a metric on the development set -> what each of its N examples adds to it, [N, ...].

    The metric follows from it under any weighting of the examples (`bert_jax.studies.weighted_metrics`). It
    is in units of the metric: where that is in percent, what is right counts 100.

    - [N]: scores, of which the metric is the mean.
    - [N, 2]: predictions and targets, of which it is the F1 of class 1, macro F1 or correlation; or for the
      names in `RATIOS` there, parts of two sums whose ratio it is.
    - [N, 3]: numbers of right, predicted and true entities, of which it is the F1.
    - [N, K, 3]: the same for each of K classes, of which it is the mean F1.

    Metrics that fit none of these are left out.
    """


class TaskData(abc.ABC):
    """A data set in rows, for one kind of head."""

    labels: tuple[str, ...] = ()
    """Words of the classes or tags, in order; their number is the head's `config.num_labels`.

    Empty where there are none.
    """
    metrics: Sequence[Metric]
    """The metrics of `evaluate` that can choose the best trial; the first one does by default."""
    train: Rows
    """The rows to train on."""
    evaluated: Mapping[str, Rows]
    """The rows to evaluate and predict, by the name of their split: dev, test, ..."""
    dev_fingerprint: str
    """A hash of the development set, including its targets and all else that it is scored with."""
    test_fingerprint: str = ""
    """A hash of the test sets, including all that predictions depend on; empty if there are none."""

    @abc.abstractmethod
    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Metrics on the development set."""

    @abc.abstractmethod
    def finish(self, apply: Apply, directory: Path) -> Outcome:
        """Evaluates once more and writes predictions of the development and test sets."""


@dataclasses.dataclass(frozen=True, eq=False)
class AppliedModel:
    """A fine-tuned model that a task predicts with."""

    record: FineTuningRecord
    tokenizer: Tokenizer
    apply: Apply

    @functools.cached_property
    def plain_tokenizer(self) -> TaskTokenizer:
        """The tokenizer that takes special tokens for plain text; cached, as making it is slow."""
        return make_task_tokenizer(self.tokenizer)


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """A job of `bert-jax predict`: a model, a file to predict, and the file to write."""

    model: AppliedModel
    input: Path
    output: Path
    """File to write, atomically."""
    encoding: str
    """That of both files."""

    def write_text(self, parts: Iterable[Sequence[str]]) -> int:
        """Writes texts part by part, and returns their number.

        Raises UserError if the encoding lacks a character of them.
        """
        encoding = codecs.lookup(self.encoding).name.removesuffix("-sig")  # a mark is among the texts
        count = 0
        try:
            with atomically(self.output) as partial, partial.open("w", encoding=encoding, newline="") as file:
                for texts in parts:
                    file.writelines(texts)
                    count += len(texts)
        except UnicodeEncodeError as error:
            lacking = error.object[error.start]
            raise UserError(
                f"{encoding} cannot write {lacking!r} of a prediction; convert the file to UTF-8"
            ) from None
        return count


class TaskSettings(TaskFlags, abc.ABC):
    """What a task does with data. A subclass is a frozen dataclass that inherits the task's flags too."""

    @abc.abstractmethod
    def load(self, task: str, data: str, tokenizer: Tokenizer) -> TaskData:
        """Reads and encodes the data set."""

    @abc.abstractmethod
    def head(self, task: str, config: FineTuningConfig) -> Head:
        """What is learned: a head on the encoder, its loss, and the metrics to show."""

    @abc.abstractmethod
    def predict_file(self, job: Prediction) -> int:
        """Predicts the examples of a file, writes the predictions, and returns the number of examples."""

    @abc.abstractmethod
    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[Any]:
        """Predictions for one or more examples in memory, which have the task's own form.

        Raises UserError naming an example of another form.
        """


X = TypeVar("X")


def join_splits(splits: Mapping[str, Mapping[str, X]]) -> dict[str, X]:
    """The metrics of all splits; names begin with that of the split, except for `dev`."""
    return {
        name if split == "dev" else f"{split}_{name}": value
        for split, metrics in splits.items()
        for name, value in metrics.items()
    }
