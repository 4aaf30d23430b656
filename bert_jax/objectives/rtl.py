"""Right-to-left language modelling: the other half of ELMo's objective (paper, section 5.1)."""

from __future__ import annotations

import dataclasses

from etils import epy

from bert_jax.objectives import language_model
from bert_jax.objectives.base import register
from bert_jax.objectives.ltr import LeftToRight
from bert_jax.task import Batch

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax


@register
@dataclasses.dataclass(frozen=True)
class RightToLeft(LeftToRight):
    """Predicts each token, [CLS] included, from those to its right, without masks.

    [CLS] has seen the whole sequence, and is pooled in fine-tuning.
    """

    name = "rtl"
    attention = "anticausal"
    transformers_class = None

    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        return language_model.previous_tokens(batch)
