"""What objectives share that predict tokens with a language model head: sums, means, FLOPs, parameters."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from etils import epy

from bert_jax.model.size import (
    dense_parameters,
    encoder_flops,
    encoder_parameters,
    norm_parameters,
    pooler_parameters,
)
from bert_jax.model_config import ModelConfig
from bert_jax.objectives.base import Objective
from bert_jax.task import Batch, Metric, Sums
from data_pipeline.checks import check_not_negative

with epy.lazy_imports():  # settings are read, and help is printed, without jax
    import jax
    import numpy as np

    from bert_jax import cross_entropy
    from bert_jax.model import packed_rows

# Keeps the mean finite in a batch without predictions (run_pretraining.py:279).
_WEIGHT_EPSILON = 1e-5
LARGEST_LOSS = 80.0
"""Larger losses are reported with the perplexity of this one, 5.5e34; exp overflows a float above 709."""


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
        return weight | count_examples(batch)

    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        """As in the base class; the first of the outputs are the logits of the targets."""
        return token_sums(self.kind, outputs[0], *self.targets(batch), self.z_loss)

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return token_loss(self.kind, sums, totals, self.z_loss)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        return token_means(self.kind, sums, self.z_loss)

    def predicted(self, batch: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        targets, weights = map(np.asarray, self.targets(batch))  # type: ignore[arg-type]
        return {f"{self.kind}_accuracy": (targets, weights > 0)}

    def num_parameters(self, model: ModelConfig) -> int:
        """Those of `BertForPreTraining`: encoder, pooler, language model and next sentence heads."""
        next_sentence = 2 * model.hidden_size + 2
        heads = pooler_parameters(model) + head_parameters(model) + next_sentence
        return encoder_parameters(model) + heads


def token_metrics(prefix: str, label: str) -> tuple[Metric, Metric]:
    """Accuracy and perplexity of predicted tokens, as `token_means` names them."""
    return (
        Metric(
            f"{prefix}_accuracy",
            f"{label} accuracy",
            "{:.1%}",
            guess="the most frequent token",
            panel="held-out accuracy, %",
        ),
        Metric(f"{prefix}_perplexity", "perplexity", better="lower", panel="held-out perplexity"),
    )


def count_examples(batch: Batch) -> Sums:
    """float32 scalars `examples` (instances; unless rows are packed, the rows that are not padding) and
    `tokens` (real positions)."""
    return {
        "examples": packed_rows.instance_weights(batch).sum(),
        "tokens": batch["input_mask"].astype("float32").sum(),
    }


def token_sums(kind: str, logits: jax.Array, targets: jax.Array, weights: jax.Array, z_loss: float) -> Sums:
    """Summed cross-entropies (nats) and numbers of correct predictions.

    Args:
      kind: prefix of the names, such as "mlm".
      logits: float32 [B, P, V].
      targets: int [B, P], the right ids.
      weights: float32 [B, P], 1 for real predictions and 0 for empty slots.
      z_loss: as of `token_loss`.

    Returns:
      float32 scalars `KIND_loss`, `KIND_correct` and, with a z-loss, `KIND_squared_log_z`.
    """
    # As rows [B x P, V]: TPUs lay out [B, P, V] in tiles of eight, into which P rarely divides, and
    # XLA would copy all logits from one layout to the other.
    logits, targets, weights = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), weights.reshape(-1)
    loss, correct = cross_entropy.cross_entropy(logits, targets)
    sums = {f"{kind}_loss": (loss * weights).sum(), f"{kind}_correct": (correct * weights).sum()}
    if z_loss:
        sums[f"{kind}_squared_log_z"] = (jax.nn.logsumexp(logits, axis=-1) ** 2 * weights).sum()
    return sums


def next_tokens(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The next id of each position, int [B, T - 1], and float32 weights: 0 for padding, and for the first
    token of the next instance in a packed row."""
    return batch["input_ids"][:, 1:], _is_neighbour(batch)


def previous_tokens(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The id before each position but the first, int [B, T - 1], and float32 weights: 0 for padding, and for
    the last token of the instance before in a packed row."""
    return batch["input_ids"][:, :-1], _is_neighbour(batch)


def _is_neighbour(batch: Batch) -> jax.Array:
    """float32 [B, T - 1]: 1 where a position and the next one hold tokens of one instance, else 0."""
    weights = batch["input_mask"][:, 1:].astype("float32")
    instances = packed_rows.instances_of(batch)
    if instances is not None:
        weights *= instances[:, 1:] == instances[:, :-1]
    return weights


def token_loss(kind: str, sums: Sums, totals: Sums, z_loss: float) -> jax.Array:
    """The mean of the sums of `token_sums` over `KIND_weight` predictions.

    Args:
      kind: prefix of the names.
      sums: of `token_sums`.
      totals: with `KIND_weight`.
      z_loss: factor on the mean of log(Z)^2, Z being the sum of the exponentials of a prediction's logits: it
        keeps logits from drifting (Chowdhery et al. 2022, "PaLM", arXiv 2204.02311, section 5).
    """
    total = sums[f"{kind}_loss"]
    if z_loss:
        total += z_loss * sums[f"{kind}_squared_log_z"]
    return total / (totals[f"{kind}_weight"] + _WEIGHT_EPSILON)


def token_means(kind: str, sums: Mapping[str, float], z_loss: float) -> dict[str, float]:
    """Loss in nats, perplexity, and accuracy from 0 to 1, under names that begin with `kind`.

    The z-loss is part of `loss`, not of the cross-entropy `KIND_loss`.
    """
    weight = max(sums[f"{kind}_weight"], 1.0)
    loss = sums[f"{kind}_loss"] / weight
    return {
        "loss": loss + z_loss * sums.get(f"{kind}_squared_log_z", 0.0) / weight,
        f"{kind}_loss": loss,
        f"{kind}_perplexity": math.exp(min(loss, LARGEST_LOSS)),
        f"{kind}_accuracy": sums[f"{kind}_correct"] / weight,
    }


def language_model_flops(model: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs of training encoder and language model head on one row with `predictions` logits."""
    width = model.embedding_width
    return encoder_flops(model, length) + 3 * 2 * predictions * width * (model.hidden_size + model.vocab_size)


def head_parameters(model: ModelConfig) -> int:
    """Parameters of the language model head, without the word embeddings."""
    width = model.embedding_width
    dense = dense_parameters(model, model.hidden_size, width)
    return dense + norm_parameters(model, width) + model.vocab_size
