"""Left-to-right language modelling: Table 5's "LTR & no NSP" (paper, section 5.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from etils import epy

from bert_jax.model_config import Attention, ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import Objective, register
from bert_jax.task import Batch, Sums
from data_pipeline.checks import check_not_negative
from data_pipeline.config import DataConfig
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import numpy as np

    from bert_jax.model import pretraining

if TYPE_CHECKING:
    import flax.linen as nn
    import jax


@register
@dataclasses.dataclass(frozen=True)
class LeftToRight(Objective):
    """Predicts each token from those to its left, with causal attention and without masks."""

    name = "ltr"
    attention: ClassVar[Attention] = "causal"
    metrics = language_model.token_metrics("lm", "LM")
    batch_arrays = ("input_ids", "input_mask", "segment_ids")
    trained_parts = frozenset(("encoder", "language_model"))
    transformers_class: ClassVar[str | None] = "BertLMHeadModel"

    z_loss: float = 0.0
    """Factor on the mean of log(Z)^2, which keeps logits from drifting (PaLM
    has 1e-4); Z is the sum of the exponentials of a prediction's logits."""

    def __post_init__(self) -> None:
        check_not_negative("objective.z_loss", self.z_loss)

    def required_data(self, data: DataConfig) -> DataConfig:
        return dataclasses.replace(data, masking=dataclasses.replace(data.masking, rate=0.0, last_rate=None))

    def check(self, data: DataConfig) -> None:
        if data.masking.rate:
            raise UserError(
                f"data.masking.rate is {data.masking.rate}; it must be 0 with objective {self.name}"
            )

    def module(self, model: ModelConfig) -> nn.Module:
        return pretraining.BertForNextTokens(model)

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """The ids to predict, int [B, T - 1], and their weights, float32."""
        return language_model.next_tokens(batch)

    def denominators(self, batch: Batch) -> Sums:
        return {
            "lm_weight": self.targets(batch)[1].sum(),
            **language_model.count_examples(batch),
        }

    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        return language_model.token_sums("lm", outputs[0], *self.targets(batch), self.z_loss)

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return language_model.token_loss("lm", sums, totals, self.z_loss)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return language_model.token_means("lm", sums, self.z_loss)

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        targets, weights = self.targets(batch)  # type: ignore[arg-type]
        return {"lm_accuracy": (np.asarray(targets), np.asarray(weights) > 0)}

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        return language_model.language_model_flops(model, length, length - 1)

    def num_parameters(self, model: ModelConfig) -> int:
        return language_model.num_parameters_with_heads(model)
