"""Pretrained encoders with the heads of the paper's tasks (Devlin et al. 2019, section 4).

Shapes: B batch, C sequences a row, T length, D hidden, L labels. Submodules are named as in
`BertForPreTraining`, so that its parameters are found by path; `classifier` is always new.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.finetuning.features import sequence_features
from bert_jax.finetuning.settings import FeatureConfig
from bert_jax.model.dropout import Dropout
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import Pooler
from bert_jax.model.linear import Linear
from bert_jax.task import Batch

IMPOSSIBLE = -10000.0
"""Score of a choice that a row does not have, or of a padded position: its probability is exactly 0."""


class PooledHead(nn.Module):
    """float32 [B, L] from the pooled [CLS] of one sequence a row: sentence and pair tasks."""

    config: ModelConfig
    num_labels: int

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        pooled_BD = _pooled(self.config, batch, deterministic)
        logits = Linear(self.config, (self.num_labels,), name="classifier")(pooled_BD)
        return logits.astype(jnp.float32)


class ChoiceHead(nn.Module):
    """float32 [B, C]: a score for each sequence of a row; one that is empty scores -10000."""

    config: ModelConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        shape = batch["input_ids"].shape[:2]
        flat = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in _INPUTS}
        pooled = _pooled(self.config, flat, deterministic)
        scores = Linear(self.config, (1,), name="classifier")(pooled).astype(jnp.float32)
        return jnp.where(batch["input_mask"][:, :, 0] > 0, scores.reshape(shape), IMPOSSIBLE)


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
    """float32 [B, L] from the hidden states where two entities start (Baldini Soares et al. 2019)."""

    config: ModelConfig
    num_labels: int

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTD = _sequence(self.config, batch, deterministic)
        starts = batch["entity_positions"][..., None]
        states_B2D = jnp.take_along_axis(sequence_BTD, starts, axis=1)
        pair = states_B2D.reshape(states_B2D.shape[0], -1)
        pair = Dropout(self.config.dropout_rate)(pair, deterministic)
        return Linear(self.config, (self.num_labels,), name="classifier")(pair).astype(jnp.float32)


class EmbeddingHead(nn.Module):
    """float32 [B, C, D], or [B, D] of one sequence a row: unit vectors, each the mean of a
    sequence's last hidden states. An empty sequence gives zeros.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        shape = batch["input_ids"].shape[:-1]
        flat = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in _INPUTS}
        states = _sequence(self.config, flat, deterministic).astype(jnp.float32)
        weights = flat["input_mask"][:, :, None].astype(jnp.float32)
        mean = (states * weights).sum(1) / jnp.maximum(weights.sum(1), 1.0)
        unit = mean * jax.lax.rsqrt(jnp.maximum((mean * mean).sum(-1, keepdims=True), 1e-12))
        return unit.reshape(*shape, -1)


_INPUTS = ("input_ids", "input_mask", "segment_ids")


def _sequence(config: ModelConfig, batch: Batch, deterministic: bool) -> jax.Array:
    inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    return Encoder(config, name="encoder")(*inputs, deterministic)


def _pooled(config: ModelConfig, batch: Batch, deterministic: bool) -> jax.Array:
    """The pooled sequence with dropout, [B, D].

    Bidirectional models pool [CLS], and their last layer is computed there alone. In a
    left-to-right model [CLS] has seen nothing; the last token is pooled, as in GPT.
    """
    inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    if config.attention == "bidirectional":
        first = jnp.zeros((inputs[0].shape[0], 1), jnp.int32)
        pooled_from = Encoder(config, name="encoder")(*inputs, deterministic, first)
    else:
        last = jnp.maximum(batch["input_mask"].sum(-1) - 1, 0)
        sequence_BTD = Encoder(config, name="encoder")(*inputs, deterministic)
        pooled_from = jnp.take_along_axis(sequence_BTD, last[:, None, None], axis=1)
    pooled_BD = Pooler(config, name="pooler")(pooled_from)
    return Dropout(config.dropout_rate)(pooled_BD, deterministic)
