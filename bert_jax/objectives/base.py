"""What every pretraining objective answers, and the registry of objectives.

An objective is one file: its settings, and everything in which it differs from others. The training
step, the loop, evaluation, progress, reports and exports ask it and know none by name.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from bert_jax.model_config import Attention, ModelConfig
from bert_jax.task import Batch, Metric, Sums
from bert_jax.user_code import find_named
from data_pipeline.config import DataConfig

if TYPE_CHECKING:
    import flax.linen as nn
    import jax
    import numpy as np


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
    """What a run learns. A subclass is a frozen dataclass whose fields, if any, are its settings.

    Batches are those of `data_pipeline.pretraining.batches`. Every method is pure.
    """

    name: ClassVar[str] = ""
    """What `--objective` calls it; empty for one that is called `module:Class`."""
    attention: ClassVar[Attention] = "bidirectional"
    """Which positions a position of the encoder may attend to."""
    metrics: ClassVar[tuple[Metric, ...]]
    """The metrics that are shown, in this order; `means` gives them."""
    batch_arrays: ClassVar[tuple[str, ...]]
    """The arrays of a batch that the module and the sums read, besides `instance_starts` of packed rows."""
    trained_parts: ClassVar[frozenset[str]]
    """Top-level names of the parameters that are trained; the others stay as they are initialised, and are
    not exported."""
    transformers_class: ClassVar[str | None] = None
    """Class of Hugging Face transformers with the same heads, by its name for a BERT; None if there is
    none."""

    def required_data(self, data: DataConfig) -> DataConfig:
        """`data` with what this objective needs of masks and pairs, as `--objective` sets it."""
        return data

    def check(self, data: DataConfig) -> None:  # noqa: B027 (nothing to check is a valid answer)
        """Raises UserError unless batches of `data` have what this objective predicts."""

    def check_model(self, model: ModelConfig) -> None:  # noqa: B027
        """Raises UserError unless this objective can train an encoder of these settings."""

    @abc.abstractmethod
    def module(self, model: ModelConfig) -> nn.Module:
        """The encoder with heads, called as `module.apply(variables, batch, deterministic, rngs=...)`.

        Its parameters under "encoder" are those of `bert_jax.model.encoder.Encoder`. In training there are
        two random streams: "dropout", whose key differs between devices and micro-batches, and "sampling",
        whose key is that of the step everywhere, for draws that are to be a function of step and sequence
        (`bert_jax.model.sampling`). Otherwise there is none.
        """

    @abc.abstractmethod
    def denominators(self, batch: Batch) -> Sums:
        """What the numerators are divided by, float32 []; among them `examples` and `tokens`."""

    @abc.abstractmethod
    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        """Summed losses (nats) and numbers of correct predictions, float32 [], of the module's outputs."""

    @abc.abstractmethod
    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        """The loss of a batch with the denominators `totals`, or what a part of it contributes."""

    @abc.abstractmethod
    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Metrics from numerators and denominators on the host: "loss", and those of `metrics`."""

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """For each metric with a `guess`: the labels that are predicted, and which of them count.

        Two arrays of one shape, int and bool; labels are below the size of the vocabulary. From them comes
        the accuracy of always guessing the most frequent label.
        """
        return {}

    @abc.abstractmethod
    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        """Floating-point operations of training on one row of a batch.

        Counts matrix products alone: a multiply and an add are two operations, and the backward pass is
        twice the forward pass. Padding, and attention between the instances of a packed row, count, since
        they are computed; recomputation to save memory does not. The last layer counts in full, though a
        step may compute most of it for the predicted positions alone.

        Args:
          model: the encoder.
          length: positions of the row.
          predictions: slots of masked tokens.
          instances: how many the row may hold.
        """

    @abc.abstractmethod
    def num_parameters(self, model: ModelConfig) -> int:
        """Parameters of the module, tied weights counted once."""


OBJECTIVES: dict[str, type[Objective]] = {}
"""The objectives that have a name."""

_Class = TypeVar("_Class", bound=type[Objective])


def register(objective: _Class) -> _Class:
    """Gives an objective its name, for `--objective` and in checkpoints. Can decorate the class."""
    OBJECTIVES[objective.name] = objective
    return objective


def find_objective(name: str) -> type[Objective]:
    """The objective of a name, or the one that `module:Class` names, whose module is then imported.

    Raises:
      UserError: there is none.
    """

    def fits(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, Objective) and value is not Objective

    return find_named("objective", name, OBJECTIVES, fits)


def objective_name(objective: Objective) -> str:
    """The name by which `find_objective` finds the class again."""
    kind = type(objective)
    return kind.name if OBJECTIVES.get(kind.name) is kind else f"{kind.__module__}:{kind.__qualname__}"
