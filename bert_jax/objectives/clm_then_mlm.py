"""Causal language modelling first, then masked (Gisserot-Boukhlef et al. 2025, "Should We Still Pretrain
Encoders with Masked Language Modeling?", arXiv 2507.00994)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from etils import epy

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.objectives.ltr import LeftToRight
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.task import Batch, Sums
from data_pipeline.config import DataConfig, Phase
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import jax.numpy as jnp
    import numpy as np

    from bert_jax.model import pretraining

_CAUSAL_FRACTION = 0.25


@register
@dataclasses.dataclass(frozen=True)
class CausalThenMaskedLM(MaskedLM):
    """Predicts, in the first phases, which have no slots for predictions, each token from those to its left;
    in the others the masked tokens, from all.

    Which of the two a batch is for, its shapes say. So each stage is a program of its own, and costs what
    `ltr` or `mlm` costs.
    """

    name = "clm_then_mlm"
    metrics = (*language_model.token_metrics("mlm", "MLM"), *language_model.token_metrics("lm", "LM"))

    def required_data(self, data: DataConfig) -> DataConfig:
        data = super().required_data(data)
        if any(not phase.max_predictions_per_seq for phase in data.phases):
            return data
        return dataclasses.replace(data, phases=causal_first(data.phases, _CAUSAL_FRACTION))

    def check(self, data: DataConfig) -> None:
        self._check_rate(data)
        slots = [phase.max_predictions_per_seq for phase in data.phases]
        num_causal = next((number for number, most in enumerate(slots) if most), len(slots))
        if not 0 < num_causal < len(slots) or 0 in slots[num_causal:]:
            raise UserError(
                f"max_predictions_per_seq is {', '.join(map(str, slots))} in the phases; with objective "
                f"{self.name} it must be 0 in the first, which are causal, and at least 1 in those after them"
            )

    def module(self, model: ModelConfig) -> pretraining.BertForPreTraining:
        return pretraining.BertForCausalThenMasked(model)

    def denominators(self, batch: Batch) -> Sums:
        weight = "mlm_weight" if _is_masked(batch) else "lm_weight"
        counts = self._stage(batch).denominators(batch)
        return {**counts, **_beside_zeros(batch, {weight: counts[weight]})}

    def numerators(self, outputs: pretraining.Logits, batch: Batch) -> Sums:
        return _beside_zeros(batch, self._stage(batch).numerators(outputs, batch))

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        masked, causal = (
            language_model.token_loss(kind, sums, totals, self.z_loss) for kind in ("mlm", "lm")
        )
        return masked + causal  # one of them is 0

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        # Steps of both stages may be added up: the loss is then the mean over all predictions.
        weights = {kind: sums[f"{kind}_weight"] for kind in ("mlm", "lm") if sums[f"{kind}_weight"]}
        means: dict[str, float] = {}
        loss = 0.0
        for kind, weight in weights.items():
            of_kind = language_model.token_means(kind, sums, self.z_loss)
            loss += of_kind["loss"] * (weight / sum(weights.values()))
            means |= of_kind
        return {**means, "loss": loss}

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return self._stage(batch).predicted(batch)  # type: ignore[arg-type]

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        stage = MaskedLM() if predictions else LeftToRight()
        return stage.flops(model, length, predictions, instances)

    def _stage(self, batch: Batch) -> MaskedLM | LeftToRight:
        return MaskedLM(self.z_loss) if _is_masked(batch) else LeftToRight(self.z_loss)


# 0.25 - 0.2 is a little less than 0.05: what is left must not become a stage without steps.
_ROUNDING = 1e-9


def causal_first(phases: tuple[Phase, ...], fraction: float) -> tuple[Phase, ...]:
    """Phases of which the first, up to a fraction of the steps, have no slots for predictions."""
    stages: list[Phase] = []
    for phase in phases:
        causal = min(fraction, phase.fraction)
        fraction -= causal
        if causal > _ROUNDING:
            stages.append(dataclasses.replace(phase, fraction=causal, max_predictions_per_seq=0))
        if phase.fraction - causal > _ROUNDING:
            stages.append(dataclasses.replace(phase, fraction=phase.fraction - causal))
    return tuple(stages)


def _is_masked(batch: Batch) -> bool:
    return batch["masked_lm_positions"].shape[-1] > 0


def _beside_zeros(batch: Batch, sums: Sums) -> Sums:
    """The sums of a batch's stage under that stage's names, and zeros under those of the other."""
    own, other = ("mlm", "lm") if _is_masked(batch) else ("lm", "mlm")
    zeros = {f"{other}{name.removeprefix(own)}": jnp.zeros_like(value) for name, value in sums.items()}
    return {**sums, **zeros}
