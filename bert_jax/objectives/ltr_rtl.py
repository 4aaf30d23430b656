"""Left-to-right and right-to-left language modelling, joined as in ELMo (paper, section 5.1; Peters et al.
2018, arXiv 1802.05365, section 3.1)."""

from __future__ import annotations

import dataclasses

from etils import epy

from bert_jax.model.size import encoder_parameters
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.objectives.ltr import LeftToRight
from bert_jax.task import Batch, Sums

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import jax.numpy as jnp

    from bert_jax.model import pretraining


@register
@dataclasses.dataclass(frozen=True)
class LeftToRightAndRightToLeft(LeftToRight):
    """Predicts each token from those to its left, and again from those to its right, in two stacks of layers
    that do not see each other.

    Metrics are of both directions together. In fine-tuning a token's vector is the concatenation of both, and
    a sequence's that of the left-to-right stack at the last token and the right-to-left one at [CLS].
    """

    name = "ltr_rtl"
    attention = "joined"
    trained_parts = frozenset(("encoder", "neighbour_token"))
    transformers_class = None

    def module(self, model: ModelConfig) -> pretraining.JoinedLanguageModel:
        return pretraining.JoinedLanguageModel(model)

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """The ids after and before, int [B, 2 x (T - 1)], and their weights, float32."""
        after, before = language_model.next_tokens(batch), language_model.previous_tokens(batch)
        ids, weights = (jnp.concatenate(arrays, axis=1) for arrays in zip(after, before, strict=True))
        return ids, weights

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return language_model.token_sums("lm", outputs, *self.targets(batch), self.z_loss)

    def flops(self, model: ModelConfig, length: int, predictions: int, instances: int) -> int:
        return sum(language_model.language_model_flops(stack, length, length - 1) for stack in model.stacks)

    def num_parameters(self, model: ModelConfig) -> int:
        return encoder_parameters(model) + language_model.head_parameters(model.stacks[0])
