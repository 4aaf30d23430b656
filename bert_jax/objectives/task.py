"""An objective and a model, together what the training step asks: `bert_jax.task.Task`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model_config import ModelConfig
from bert_jax.objectives.base import Objective, objective_name
from bert_jax.task import Batch, Metric, Sums
from data_pipeline.config import Phase
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batch_contract import INSTANCE_STARTS, batch_spec

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Pretraining of a model by an objective."""

    objective: Objective
    model: ModelConfig

    @property
    def module(self) -> nn.Module:
        return self.objective.module(self.model)

    def example_batch(self) -> dict[str, jax.Array]:
        smallest = Phase(max_seq_length=5, max_predictions_per_seq=1)
        arrays = self.abstract_batch(smallest, rows=1, max_instances_per_row=1)
        return {name: jnp.zeros(array.shape, array.dtype) for name, array in arrays.items()}

    def abstract_batch(
        self, phase: Phase, rows: int, max_instances_per_row: int
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of a batch, before there is one."""
        return {
            name: jax.ShapeDtypeStruct((rows, *array.shape), array.dtype)
            for name, array in self.select(batch_spec(phase, max_instances_per_row)).items()
        }

    def select(self, arrays: Mapping[str, T]) -> dict[str, T]:
        """Those arrays of a batch that the objective reads.

        Raises:
          UserError: the batch lacks one.
        """
        names = {*self.objective.batch_arrays, INSTANCE_STARTS}
        if missing := names - {*arrays, INSTANCE_STARTS}:
            raise UserError(
                f"objective {objective_name(self.objective)} reads {', '.join(sorted(missing))}, which "
                f"batches do not have; they have {', '.join(arrays)}"
            )
        return {name: array for name, array in arrays.items() if name in names}

    def abstract_params(self) -> Mapping[str, Any]:
        """Shapes and dtypes of all parameters; computes nothing."""

        def init() -> Mapping[str, Any]:
            return self.module.init(jax.random.key(0), self.example_batch(), deterministic=True)

        return jax.eval_shape(init)["params"]

    def denominators(self, batch: Batch) -> Sums:
        return self.objective.denominators(batch)

    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        return self.objective.numerators(outputs, batch)

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return self.objective.loss(sums, totals)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return self.objective.means(sums)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.objective.metrics

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        # Weight decay, or LAMB's trust ratio, would shrink even a part that has no gradient;
        # google-research/bert does not update variables that its loss does not depend on.
        return float(path[0] in self.objective.trained_parts)

    def flops(self, batch: Mapping[str, Any]) -> int:
        """FLOPs of training on a batch, of which the shapes are enough."""
        length = batch["input_ids"].shape[-1]
        slots = batch["masked_lm_positions"].shape[-1] if "masked_lm_positions" in batch else 0
        instances = batch[INSTANCE_STARTS].shape[-1] if INSTANCE_STARTS in batch else 1
        rows = batch["input_ids"].size // length
        return rows * self.objective.flops(self.model, length, slots, instances)
