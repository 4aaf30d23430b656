"""What objectives that predict tokens with one language model head have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from etils import epy

from bert_jax.model.size import encoder_parameters, pooler_parameters
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import language_model
from bert_jax.objectives.base import Objective
from bert_jax.task import Batch, Sums
from data_pipeline.checks import check_not_negative

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import numpy as np


@dataclasses.dataclass(frozen=True)
class TokenObjective(Objective):
    """Predicts the `targets` of a batch; the names of sums and metrics begin with `kind`."""

    kind: ClassVar[str]

    z_loss: float = 0.0
    """Factor on the mean of log(Z)^2, which keeps logits from drifting (PaLM
    has 1e-4); Z is the sum of the exponentials of a prediction's logits."""

    def __post_init__(self) -> None:
        check_not_negative("objective.z_loss", self.z_loss)

    @abc.abstractmethod
    def targets(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """The ids to predict, int [B, P], and their weights, float32."""

    def denominators(self, batch: Batch) -> Sums:
        weight = {f"{self.kind}_weight": self.targets(batch)[1].sum()}
        return weight | language_model.count_examples(batch)

    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        return language_model.token_sums(self.kind, outputs[0], *self.targets(batch), self.z_loss)

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return language_model.token_loss(self.kind, sums, totals, self.z_loss)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return language_model.token_means(self.kind, sums, self.z_loss)

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        targets, weights = map(np.asarray, self.targets(batch))  # type: ignore[arg-type]
        return {f"{self.kind}_accuracy": (targets, weights > 0)}

    def num_parameters(self, model: ModelConfig) -> int:
        """Those of `BertForPreTraining`: encoder, pooler, language model and next sentence heads."""
        next_sentence = 2 * model.hidden_size + 2
        heads = pooler_parameters(model) + language_model.head_parameters(model) + next_sentence
        return encoder_parameters(model) + heads
