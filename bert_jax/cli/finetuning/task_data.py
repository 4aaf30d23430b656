"""What a task of `bert-jax finetune` gives the training of a model, and what it does with outputs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from bert_jax.finetuning.config import Kind
    from data_pipeline.tasks.rows import Rows

Apply: TypeAlias = "Callable[[Rows], Iterator[tuple[np.ndarray, np.ndarray]]]"
"""Rows -> numbers int32 [R] of some rows and the model's outputs [R, ...] for them, until all came."""


class TaskData(Protocol):
    """A data set in rows, for one kind of head."""

    @property
    def kind(self) -> "Kind":
        """Of head."""
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

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Figures on the development set."""
        ...

    def degenerate(self, apply: Apply) -> str | None:
        """One sentence if the model says the same of every example of the development set."""
        ...

    def write(self, apply: Apply, folder: Path) -> Mapping[str, Any]:
        """Writes predictions of the development and test sets; returns what predicting later has to
        know, such as a threshold tuned here."""
        ...
