"""Left-to-right language modelling: Table 5's "LTR & no NSP" (paper, section 5.1)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from bert_jax.model_config import Attention, ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.task import Batch
from data_pipeline.config import DataConfig
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import flax.linen as nn
    import jax

    from bert_jax.model import pretraining


@register
@dataclasses.dataclass(frozen=True)
class LeftToRight(language_model.TokenObjective):
    """Predicts each token from those to its left, with causal attention and without masks."""

    name = "ltr"
    kind = "lm"
    attention: ClassVar[Attention] = "causal"
    metrics = language_model.token_metrics("lm", "LM")
    batch_arrays = ("input_ids", "input_mask", "segment_ids")
    trained_parts = frozenset(("encoder", "language_model"))
    transformers_class: ClassVar[str | None] = "BertLMHeadModel"

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

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        return language_model.language_model_flops(model, length, length - 1)
