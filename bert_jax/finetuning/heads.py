"""Pretrained encoders with the heads of the paper's tasks (Devlin et al. 2019, section 4).

Shapes: R rows with C sequences each, in B lines of T positions; W width, L labels. In a packed batch a line
has places for K rows, some of them empty (`bert_jax.model.packed_rows`), and R is B x K; otherwise a line
holds one row, or one of its sequences. Submodules are named as in `BertForPreTraining`, so that its
parameters are found by path; `classifier` is always new.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.finetuning.config import FeatureConfig
from bert_jax.finetuning.features import pooled_features, sequence_features
from bert_jax.model.dropout import Dropout
from bert_jax.model.linear import Linear
from bert_jax.model.packed_rows import instance_masks, is_instance
from bert_jax.task import Batch

IMPOSSIBLE = -10000.0
"""Score of a missing choice or of a padded position, whose probability is then exactly 0."""


class PooledHead(nn.Module):
    """float32 [R, L] from one vector per row (`pooled_features`), for tasks of sentences and pairs."""

    config: ModelConfig
    features: FeatureConfig
    num_labels: int
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        pooled_RW = pooled_features(self.config, self.features, batch, deterministic)
        pooled_RW = Dropout(self.dropout_rate)(pooled_RW, deterministic)
        return _classifier(self.config, self.num_labels)(pooled_RW)


class ChoiceHead(nn.Module):
    """float32 [R, C]: a score for each sequence of a row; an empty sequence scores -10000."""

    config: ModelConfig
    features: FeatureConfig
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequences, width = sequences_of(batch)
        pooled = pooled_features(self.config, self.features, sequences, deterministic)
        pooled = Dropout(self.dropout_rate)(pooled, deterministic)
        scores = _classifier(self.config, 1)(pooled)
        is_there = is_instance(sequences).reshape(-1, width)
        return jnp.where(is_there, scores.reshape(-1, width), IMPOSSIBLE)


class SpanHead(nn.Module):
    """float32 [R, T, 2]: scores of a span's start and end; positions outside the row score -10000."""

    config: ModelConfig
    features: FeatureConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, self.features, batch, deterministic)
        logits_BT2 = _classifier(self.config, 2)(sequence_BTW)
        logits = jnp.where(instance_masks(batch)[..., None], logits_BT2[:, None], IMPOSSIBLE)
        return logits.reshape(-1, *logits_BT2.shape[1:])


class TokenHead(nn.Module):
    """float32 [B, T, L]: a score of every label at every position."""

    config: ModelConfig
    features: FeatureConfig
    num_labels: int
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, self.features, batch, deterministic)
        sequence_BTW = Dropout(self.dropout_rate)(sequence_BTW, deterministic)
        return _classifier(self.config, self.num_labels)(sequence_BTW)


class EntityPairHead(nn.Module):
    """float32 [R, L] from the states at the starts of two entities (Baldini Soares et al. 2019)."""

    config: ModelConfig
    features: FeatureConfig
    num_labels: int
    dropout_rate: float

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, self.features, batch, deterministic)
        lines, _, width = sequence_BTW.shape
        starts = batch["entity_positions"].reshape(lines, -1, 1)
        pair = jnp.take_along_axis(sequence_BTW, starts, axis=1).reshape(-1, 2 * width)
        pair = Dropout(self.dropout_rate)(pair, deterministic)
        return _classifier(self.config, self.num_labels)(pair)


class EmbeddingHead(nn.Module):
    """float32 [R, C, W], or [R, W] with one sequence per row: a unit vector for each sequence.

    It is the normalized mean of the sequence's features, by default its last hidden states. An empty
    sequence gives zeros.
    """

    config: ModelConfig
    features: FeatureConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequences, width = sequences_of(batch)
        states = sequence_features(self.config, self.features, sequences, deterministic).astype(jnp.float32)
        weights = instance_masks(sequences).astype(jnp.float32)
        sums = jnp.einsum("bkt,btw->bkw", weights, states, precision="highest")
        mean = sums / jnp.maximum(weights.sum(-1, keepdims=True), 1.0)
        unit = mean * jax.lax.rsqrt(jnp.maximum((mean * mean).sum(-1, keepdims=True), 1e-12))
        return unit.reshape(-1, *((width,) if width > 1 else ()), unit.shape[-1])


def sequences_of(batch: Batch) -> tuple[Batch, int]:
    """The inputs, with each of a row's C sequences as an instance of its own, in order; and C."""
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    if "instance_starts" in batch:
        starts = batch["instance_starts"]
        width = starts.shape[2] if starts.ndim > 2 else 1
        return {**inputs, "instance_starts": starts.reshape(len(starts), -1)}, width
    ids = batch["input_ids"]
    width = ids.shape[1] if ids.ndim > 2 else 1
    return {name: x.reshape(-1, x.shape[-1]) for name, x in inputs.items()}, width


def _classifier(config: ModelConfig, num_labels: int) -> Linear:
    """The output layer. Its scores are always float32, as in masked LM: bfloat16 would tie close ones."""
    return Linear(config, (num_labels,), result=jnp.float32, name="classifier")
