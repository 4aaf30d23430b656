"""The pretraining task: masked language model with or without next sentence prediction, or LTR."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.model.pretraining import BertForPreTraining
from bert_jax.pretraining import losses, metrics
from bert_jax.task import Batch, Sums
from bert_jax.training.accounting import flops_per_row
from data_pipeline.batch_contract import batch_spec
from data_pipeline.config import Phase


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Pretraining as a `bert_jax.task.Task`; `model.objective` decides which losses count."""

    model: ModelConfig

    @property
    def module(self) -> BertForPreTraining:
        return BertForPreTraining(self.model)

    def example_batch(self) -> dict[str, jax.Array]:
        smallest = abstract_batch(
            Phase(max_seq_length=5, max_predictions_per_seq=1), rows=1, max_instances_per_row=1
        )
        return {name: jnp.zeros(array.shape, array.dtype) for name, array in smallest.items()}

    def denominators(self, batch: Batch) -> Sums:
        return losses.denominators(batch, self.model.learns)

    def numerators(self, outputs: losses.Logits, batch: Batch) -> Sums:
        return losses.numerators(outputs, batch, self.model.learns)

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return losses.objective_loss(sums, totals, self.model.learns)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return metrics.means(sums, self.model.learns)

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        # Weight decay, or LAMB's trust ratio, would shrink even a part that has no gradient;
        # google-research/bert does not update variables that its loss does not depend on.
        return float(path[0] in self.model.learns.trained_parts)

    def flops(self, batch: Batch) -> int:
        length, predictions = batch["input_ids"].shape[-1], batch["masked_lm_positions"].shape[-1]
        instances = batch["instance_starts"].shape[-1] if "instance_starts" in batch else 1
        num_rows = batch["input_ids"].size // length
        return num_rows * flops_per_row(self.model, length, predictions, instances)


def abstract_batch(phase: Phase, rows: int, max_instances_per_row: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of a batch, before there is one."""
    return {
        name: jax.ShapeDtypeStruct((rows, *array.shape), array.dtype)
        for name, array in batch_spec(phase, max_instances_per_row).items()
    }
