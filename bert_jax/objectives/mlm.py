"""Masked language modelling alone: Table 5's "no NSP" (paper, section 3.1, task 1)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.task import Batch, Metric
from data_pipeline.config import DataConfig, MaskingConfig
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import flax.linen as nn
    import jax

    from bert_jax.model import pretraining


@register
@dataclasses.dataclass(frozen=True)
class MaskedLM(language_model.TokenObjective):
    """Predicts the masked tokens of a bidirectional encoder's input."""

    name = "mlm"
    kind = "mlm"
    metrics: ClassVar[tuple[Metric, ...]] = language_model.token_metrics("mlm", "MLM")
    batch_arrays: ClassVar[tuple[str, ...]] = (
        *("input_ids", "input_mask", "segment_ids"),
        *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
    )
    trained_parts = frozenset(("encoder", "language_model"))
    transformers_class: ClassVar[str | None] = "BertForMaskedLM"

    def required_data(self, data: DataConfig) -> DataConfig:
        masking = data.masking if data.masking.rate else MaskingConfig()
        return dataclasses.replace(data, masking=masking)

    def check(self, data: DataConfig) -> None:
        self._check_rate(data)
        for phase in data.phases:
            if not phase.max_predictions_per_seq:
                raise UserError(
                    f"max_predictions_per_seq is 0 in the phase of length {phase.max_seq_length}; it must be "
                    f"at least 1 with data.masking.rate {data.masking.rate}"
                )

    def _check_rate(self, data: DataConfig) -> None:
        if not data.masking.rate:
            raise UserError(f"data.masking.rate is 0; it must be above 0 with objective {self.name}")

    def module(self, model: ModelConfig) -> nn.Module:
        return pretraining.BertForPreTraining(model)

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        return batch["masked_lm_ids"], batch["masked_lm_weights"]

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        return language_model.language_model_flops(model, length, predictions)
