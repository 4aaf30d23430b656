"""Masked language modelling and sentence order prediction (Lan et al. 2020, "ALBERT", arXiv 1909.11942)."""

from __future__ import annotations

import dataclasses

from bert_jax.objectives.base import register
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.objectives.mlm_nsp import MaskedLMAndNSP
from bert_jax.task import Metric


@register
@dataclasses.dataclass(frozen=True)
class MaskedLMAndSOP(MaskedLMAndNSP):
    """Predicts the masked tokens, and from [CLS] whether two consecutive segments were swapped.

    The head, its loss and its weight are those of next sentence prediction.
    """

    name = "mlm_sop"
    pairing = "sentence_order"
    pair = "sop"
    metrics = (
        MaskedLM.metrics[0],
        Metric("sop_accuracy", "SOP accuracy", "{:.1%}", guess="the more frequent label"),
        MaskedLM.metrics[1],
    )
