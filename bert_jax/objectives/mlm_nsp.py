"""Masked language modelling and next sentence prediction, as in the paper (section 3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from etils import epy

from bert_jax.model_config import ModelConfig
from bert_jax.objectives.base import register
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.task import Batch, Metric, Sums
from data_pipeline.config import DataConfig, Pairing
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import jax.numpy as jnp
    import numpy as np

    from bert_jax import cross_entropy
    from bert_jax.model import packed_rows, pretraining


@register
@dataclasses.dataclass(frozen=True)
class MaskedLMAndNSP(MaskedLM):
    """Predicts the masked tokens, and from [CLS] whether the second segment followed the first in the text.

    The loss is the sum of the two means.
    """

    name = "mlm_nsp"
    pairing: ClassVar[Pairing] = "next_sentence"
    """What the batches' pairs are."""
    pair: ClassVar[str] = "nsp"
    """Prefix of the pair's sums and metrics."""
    metrics = (
        MaskedLM.metrics[0],
        Metric("nsp_accuracy", "NSP accuracy", "{:.1%}", guess="the more frequent label"),
        MaskedLM.metrics[1],
    )
    batch_arrays = (*MaskedLM.batch_arrays, "next_sentence_labels")
    trained_parts = MaskedLM.trained_parts | {"pooler", "next_sentence"}
    transformers_class = "BertForPreTraining"

    def required_data(self, data: DataConfig) -> DataConfig:
        return dataclasses.replace(super().required_data(data), pairing=self.pairing)

    def check(self, data: DataConfig) -> None:
        super().check(data)
        if data.pairing != self.pairing:
            raise UserError(
                f"objective {self.name} needs data.pairing {self.pairing}; for {data.pairing} give "
                "--objective mlm"
            )

    def numerators(self, outputs: pretraining.Logits, batch: Batch) -> Sums:
        is_instance = packed_rows.instance_weights(batch)
        loss, correct = cross_entropy.cross_entropy(outputs[1], batch["next_sentence_labels"])
        of_pairs = {
            f"{self.pair}_loss": (loss * is_instance).sum(),
            f"{self.pair}_correct": (correct * is_instance).sum(),
        }
        return super().numerators(outputs, batch) | of_pairs

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return super().loss(sums, totals) + sums[f"{self.pair}_loss"] / jnp.maximum(totals["examples"], 1.0)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        row, examples = super().means(sums), max(sums["examples"], 1.0)
        loss, correct = (sums[f"{self.pair}_{name}"] / examples for name in ("loss", "correct"))
        of_pairs = {f"{self.pair}_loss": loss, f"{self.pair}_accuracy": correct}
        return {**row, **of_pairs, "loss": row["loss"] + loss}

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        counts = np.asarray(packed_rows.instance_weights(batch)) > 0  # type: ignore[arg-type]
        return super().predicted(batch) | {f"{self.pair}_accuracy": (batch["next_sentence_labels"], counts)}

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        width = model.hidden_size
        next_sentence = 3 * 2 * instances * width * (width + 2)
        return super().flops(model, length, predictions, instances) + next_sentence
