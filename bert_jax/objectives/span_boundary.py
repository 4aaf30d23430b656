"""Masked language modelling and the span boundary objective (Joshi et al. 2020, "SpanBERT",
arXiv 1907.10529)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from etils import epy

from bert_jax.model.size import (
    SPAN_POSITION_WIDTH,
    SPAN_POSITIONS,
    dense_parameters,
    encoder_parameters,
    norm_parameters,
)
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.task import Batch, Sums
from data_pipeline.config import DataConfig

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import numpy as np

    from bert_jax.model import span_boundary


@register
@dataclasses.dataclass(frozen=True)
class MaskedLMAndSpanBoundary(MaskedLM):
    """Predicts each masked token twice: from its own position, and from the two tokens around its span.

    The loss is the sum of the two means. Spans are runs of adjacent masked tokens, whatever they were
    drawn by; `--objective span_boundary` sets `data.masking.unit` span, and one text in place of a pair.
    """

    name = "span_boundary"
    metrics = (*MaskedLM.metrics, *language_model.token_metrics("sbo", "span boundary"))
    trained_parts = MaskedLM.trained_parts | {"span_boundary"}

    def required_data(self, data: DataConfig) -> DataConfig:
        data = super().required_data(data)
        pairing = data.pairing if data.pairing == "full_sentences" else "contiguous"
        return dataclasses.replace(
            data, pairing=pairing, masking=dataclasses.replace(data.masking, unit="span")
        )

    def module(self, model: ModelConfig) -> span_boundary.SpanBoundaryModel:
        return span_boundary.SpanBoundaryModel(model)

    def numerators(self, outputs: span_boundary.SpanPredictions, batch: Batch) -> Sums:
        of_boundaries = language_model.token_sums(
            "sbo", outputs.boundary_logits, *self.targets(batch), self.z_loss
        )
        return super().numerators(outputs, batch) | of_boundaries

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        totals_of_boundaries = {"sbo_weight": totals["mlm_weight"]}
        of_boundaries = language_model.token_loss("sbo", sums, totals_of_boundaries, self.z_loss)
        return super().loss(sums, totals) + of_boundaries

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        row, weight = super().means(sums), {"sbo_weight": sums["mlm_weight"]}
        of_boundaries = language_model.token_means("sbo", {**sums, **weight}, self.z_loss)
        return {**row, **of_boundaries, "loss": row["loss"] + of_boundaries["loss"]}

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        (of_tokens,) = super().predicted(batch).values()
        return {"mlm_accuracy": of_tokens, "sbo_accuracy": of_tokens}

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        width = model.hidden_size
        around = 2 * width + SPAN_POSITION_WIDTH
        logits = model.embedding_width * (width + model.vocab_size)
        head = 3 * 2 * predictions * (around * width + logits)
        return super().flops(model, length, predictions, instances) + head

    def num_parameters(self, model: ModelConfig) -> int:
        width = model.hidden_size
        around = dense_parameters(model, 2 * width + SPAN_POSITION_WIDTH, width)
        positions = SPAN_POSITIONS * SPAN_POSITION_WIDTH
        head = positions + around + norm_parameters(model, width) + language_model.head_parameters(model)
        return encoder_parameters(model) + language_model.head_parameters(model) + head
