"""Causal and masked language modelling in one model (Charpentier and Samuel 2024, "GPT or BERT: why not
both?", arXiv 2410.24159)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from etils import epy

from bert_jax.model.size import encoder_parameters
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.task import Batch, Sums
from data_pipeline.checks import check_types
from data_pipeline.errors import UserError

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import numpy as np

    from bert_jax.model import masked_tokens, pretraining, sampling


@register
@dataclasses.dataclass(frozen=True)
class HybridLanguageModel(MaskedLM):
    """Predicts tokens from the position before them: in some sequences each from those to its left, in the
    others the masked ones from all.

    Which sequences are causal, a hash of their masked tokens chooses anew at each visit. They are read
    without masks. The loss weighs the two means by their fractions.
    """

    name = "hybrid"
    metrics = (*language_model.token_metrics("mlm", "MLM"), *language_model.token_metrics("lm", "LM"))
    trained_parts = frozenset(("encoder", "next_token"))
    transformers_class = None

    causal_fraction: float = 0.5
    """Fraction of the sequences that are causal, and weight of their loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, "objective.")
        if not 0 < self.causal_fraction < 1:
            raise UserError(
                f"objective.causal_fraction is {self.causal_fraction:g}; it must be above 0 and below 1; "
                "objectives mlm and ltr have one of the two alone"
            )

    def module(self, model: ModelConfig) -> pretraining.HybridModel:
        return pretraining.HybridModel(model, self.causal_fraction)

    def denominators(self, batch: Batch) -> Sums:
        _, masked, causal = self._targets(batch)
        counts = {"mlm_weight": masked.sum(), "lm_weight": causal.sum()}
        return {**counts, **language_model.count_examples(batch)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        targets, masked, causal = self._targets(batch)
        of_masked = language_model.token_sums("mlm", outputs, targets, masked, self.z_loss)
        return of_masked | language_model.token_sums("lm", outputs, targets, causal, self.z_loss)

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        masked, causal = (
            language_model.token_loss(kind, sums, totals, self.z_loss) for kind in ("mlm", "lm")
        )
        return (1 - self.causal_fraction) * masked + self.causal_fraction * causal

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        masked, causal = (language_model.token_means(kind, sums, self.z_loss) for kind in ("mlm", "lm"))
        loss = (1 - self.causal_fraction) * masked["loss"] + self.causal_fraction * causal["loss"]
        return {**masked, **causal, "loss": loss}

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        targets, masked, causal = map(np.asarray, self._targets(batch))  # type: ignore[arg-type]
        return {"mlm_accuracy": (targets, masked > 0), "lm_accuracy": (targets, causal > 0)}

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        return language_model.language_model_flops(model, length, length - 1)

    def num_parameters(self, model: ModelConfig) -> int:
        return encoder_parameters(model) + language_model.head_parameters(model)

    def _targets(self, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The id after each position, int [B, T - 1], and float32 weights of masked and of causal ones."""
        original = {**batch, "input_ids": masked_tokens.fill_in(batch, batch["masked_lm_ids"])}
        targets, follows = language_model.next_tokens(original)
        is_causal = sampling.choose_sequences(batch, self.causal_fraction)[:, 1:]
        masked = (masked_tokens.is_masked(batch)[:, 1:] & ~is_causal).astype("float32")
        return targets, masked, follows * is_causal
