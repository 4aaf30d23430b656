"""Pretrained encoders with the heads of the paper's tasks (Devlin et al. 2019, section 4).

Shapes: B batch, C sequences a row, T length, D hidden, L labels. Submodules are named as in
`BertForPreTraining`, so that its parameters are found by path; `classifier` is always new.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.finetuning.features import pooled_features, sequence_features
from bert_jax.finetuning.settings import FeatureConfig
from bert_jax.model.dropout import Dropout
from bert_jax.model.linear import Linear
from bert_jax.task import Batch

IMPOSSIBLE = -10000.0
"""Score of a choice that a row does not have, or of a padded position: its probability is exactly 0."""


class PooledHead(nn.Module):
    """float32 [B, L] from one vector for each sequence (`pooled_features`): sentence and pair tasks."""

    config: ModelConfig
    features: FeatureConfig
    num_labels: int
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        pooled_BW = pooled_features(self.config, self.features, batch, deterministic)
        pooled_BW = Dropout(self.dropout_rate)(pooled_BW, deterministic)
        return Linear(self.config, (self.num_labels,), name="classifier")(pooled_BW).astype(jnp.float32)


class ChoiceHead(nn.Module):
    """float32 [B, C]: a score for each sequence of a row; one that is empty scores -10000."""

    config: ModelConfig
    features: FeatureConfig
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        pooled = pooled_features(self.config, self.features, _flat(batch), deterministic)
        pooled = Dropout(self.dropout_rate)(pooled, deterministic)
        scores = Linear(self.config, (1,), name="classifier")(pooled).astype(jnp.float32)
        is_there = batch["input_mask"][:, :, 0] > 0
        return jnp.where(is_there, scores.reshape(is_there.shape), IMPOSSIBLE)


class SpanHead(nn.Module):
    """float32 [B, T, 2]: scores of a span's start and end; padded positions score -10000."""

    config: ModelConfig
    features: FeatureConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, self.features, batch, deterministic)
        logits = Linear(self.config, (2,), name="classifier")(sequence_BTW).astype(jnp.float32)
        return jnp.where(batch["input_mask"][:, :, None] > 0, logits, IMPOSSIBLE)


class TokenHead(nn.Module):
    """float32 [B, T, L]: label scores of every position."""

    config: ModelConfig
    features: FeatureConfig
    num_labels: int
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, self.features, batch, deterministic)
        sequence_BTW = Dropout(self.dropout_rate)(sequence_BTW, deterministic)
        return Linear(self.config, (self.num_labels,), name="classifier")(sequence_BTW).astype(jnp.float32)


class EntityPairHead(nn.Module):
    """float32 [B, L] from what is seen where two entities start (Baldini Soares et al. 2019)."""

    config: ModelConfig
    features: FeatureConfig
    num_labels: int
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, self.features, batch, deterministic)
        starts = batch["entity_positions"][..., None]
        states_B2W = jnp.take_along_axis(sequence_BTW, starts, axis=1)
        pair = states_B2W.reshape(states_B2W.shape[0], -1)
        pair = Dropout(self.dropout_rate)(pair, deterministic)
        return Linear(self.config, (self.num_labels,), name="classifier")(pair).astype(jnp.float32)


class EmbeddingHead(nn.Module):
    """float32 [B, C, W], or [B, W] of one sequence a row: unit vectors, each the mean of a
    sequence's features, by default its last hidden states. An empty sequence gives zeros.
    """

    config: ModelConfig
    features: FeatureConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        flat = _flat(batch)
        states = sequence_features(self.config, self.features, flat, deterministic).astype(jnp.float32)
        weights = flat["input_mask"][:, :, None].astype(jnp.float32)
        mean = (states * weights).sum(1) / jnp.maximum(weights.sum(1), 1.0)
        unit = mean * jax.lax.rsqrt(jnp.maximum((mean * mean).sum(-1, keepdims=True), 1e-12))
        return unit.reshape(*batch["input_ids"].shape[:-1], -1)


def _flat(batch: Batch) -> Batch:
    """The inputs of all sequences of all rows, [B x C, T]."""
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in names}
