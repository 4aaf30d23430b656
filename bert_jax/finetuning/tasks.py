"""The tasks of fine-tuning, each a head and its loss in sums (`bert_jax.task.Task`).

Batches are those of `data_pipeline.tasks.batches`: `input_ids`, `input_mask`, `segment_ids` int32
[B, T] or [B, C, T], and the targets that each task names for its R rows. A row whose `input_mask` is all
zero is padding and is ignored. In a packed batch a line has places for K rows: targets are [B, K, ...]
instead, and empty places are ignored.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig
from bert_jax.finetuning import heads
from bert_jax.finetuning.config import FeatureConfig, FineTuningConfig, LayerRates
from bert_jax.model.packed_rows import is_instance
from bert_jax.names import RankingLoss
from bert_jax.pretraining.losses import cross_entropy
from bert_jax.task import Batch, Sums
from bert_jax.training.accounting import encoder_flops

_SCALE = 20.0
_MARGIN = 0.2


@dataclasses.dataclass(frozen=True)
class FineTuningTask(abc.ABC):
    """A task whose loss is a mean over its targets: rows, or labelled tokens."""

    model: ModelConfig
    rates: LayerRates = dataclasses.field(default=LayerRates(), kw_only=True)
    features: FeatureConfig = dataclasses.field(default=FeatureConfig(), kw_only=True)

    @property
    @abc.abstractmethod
    def module(self) -> nn.Module: ...

    @abc.abstractmethod
    def example_batch(self) -> dict[str, jax.Array]: ...

    @abc.abstractmethod
    def numerators(self, outputs: Any, batch: Batch) -> Sums: ...

    @property
    def encoder_config(self) -> ModelConfig:
        """The model's configuration; without dropout if all layers are frozen, so that features are fixed."""
        if self.rates.frozen_layers != self.model.num_layers:
            return self.model
        return dataclasses.replace(self.model, dropout_rate=0.0, attention_dropout_rate=0.0)

    def denominators(self, batch: Batch) -> Sums:
        rows, tokens = _real_rows(batch), batch["input_mask"].astype(jnp.float32)
        return {"examples": rows.sum(), "tokens": tokens.sum(), "targets": self._targets(batch)}

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return sums["loss"] / jnp.maximum(totals["targets"], 1.0)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        targets = max(sums["targets"], 1.0)
        figures = {"loss": sums["loss"] / targets}
        return figures | ({"accuracy": sums["correct"] / targets} if "correct" in sums else {})

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        return self.rates.share(path, self.model.num_layers)

    def flops(self, batch: Batch) -> int:
        length = batch["input_ids"].shape[-1]
        return (
            batch["input_ids"].size
            // length
            * encoder_flops(self.model, length, self.rates.frozen_layers or 0)
        )

    def _targets(self, batch: Batch) -> jax.Array:
        return _real_rows(batch).sum()


@dataclasses.dataclass(frozen=True)
class Classification(FineTuningTask):
    """One of `num_labels` labels for a text or a pair. Targets: `labels` int32 [R]."""

    num_labels: int

    @property
    def module(self) -> nn.Module:
        return heads.PooledHead(
            self.encoder_config, self.features, self.num_labels, dropout_rate=self.model.dropout_rate
        )

    def example_batch(self) -> dict[str, jax.Array]:
        return _example_inputs() | {"labels": jnp.zeros((1,), jnp.int32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return _classes(outputs, batch["labels"].reshape(-1), _real_rows(batch))


@dataclasses.dataclass(frozen=True)
class RelationClassification(Classification):
    """One of `num_labels` relations of two entities. Targets: `labels`, and `entity_positions` int32 [R, 2],
    the positions where head and tail begin."""

    @property
    def module(self) -> nn.Module:
        return heads.EntityPairHead(
            self.encoder_config, self.features, self.num_labels, dropout_rate=self.model.dropout_rate
        )

    def example_batch(self) -> dict[str, jax.Array]:
        return super().example_batch() | {"entity_positions": jnp.zeros((1, 2), jnp.int32)}


@dataclasses.dataclass(frozen=True)
class Regression(FineTuningTask):
    """A number for a text or a pair, by mean squared error. Targets: `values` float32 [R]."""

    @property
    def module(self) -> nn.Module:
        return heads.PooledHead(
            self.encoder_config, self.features, num_labels=1, dropout_rate=self.model.dropout_rate
        )

    def example_batch(self) -> dict[str, jax.Array]:
        return _example_inputs() | {"values": jnp.zeros((1,), jnp.float32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        errors = jnp.square(outputs[:, 0] - batch["values"].reshape(-1))
        return {"loss": (errors * _real_rows(batch)).sum()}


@dataclasses.dataclass(frozen=True)
class MultipleChoice(FineTuningTask):
    """One of a row's sequences, of which there are at most C. Targets: `labels` int32 [R]."""

    @property
    def module(self) -> nn.Module:
        return heads.ChoiceHead(self.encoder_config, self.features, dropout_rate=self.model.dropout_rate)

    def example_batch(self) -> dict[str, jax.Array]:
        return _example_inputs((1, 2, 2)) | {"labels": jnp.zeros((1,), jnp.int32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return _classes(outputs, batch["labels"].reshape(-1), _real_rows(batch))


@dataclasses.dataclass(frozen=True)
class SpanExtraction(FineTuningTask):
    """Where an answer starts and ends. Targets: `start_positions`, `end_positions` int32 [R];
    the loss is the mean of the two cross-entropies, as in google-research/bert's run_squad.py."""

    @property
    def module(self) -> nn.Module:
        return heads.SpanHead(self.encoder_config, self.features)

    def example_batch(self) -> dict[str, jax.Array]:
        position = jnp.zeros((1,), jnp.int32)
        return _example_inputs() | {"start_positions": position, "end_positions": position}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        start_loss, start_right = cross_entropy(outputs[..., 0], batch["start_positions"].reshape(-1))
        end_loss, end_right = cross_entropy(outputs[..., 1], batch["end_positions"].reshape(-1))
        real = _real_rows(batch)
        loss = (start_loss + end_loss) / 2
        return {"loss": (loss * real).sum(), "correct": (start_right * end_right * real).sum()}


@dataclasses.dataclass(frozen=True)
class Tagging(FineTuningTask):
    """One of `num_labels` tags for some tokens. Targets: `tag_ids` int32 [B, T], -1 for none."""

    num_labels: int

    @property
    def module(self) -> nn.Module:
        return heads.TokenHead(
            self.encoder_config, self.features, self.num_labels, dropout_rate=self.model.dropout_rate
        )

    def example_batch(self) -> dict[str, jax.Array]:
        inputs = _example_inputs()
        return inputs | {"tag_ids": inputs["input_ids"]}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return _classes(outputs, batch["tag_ids"], batch["tag_ids"] >= 0)

    def _targets(self, batch: Batch) -> jax.Array:
        return (batch["tag_ids"] >= 0).astype(jnp.float32).sum()


@dataclasses.dataclass(frozen=True)
class Ranking(FineTuningTask):
    """Embeds queries near the texts that answer them. A row has query, positive and optionally negative.

    in_batch: cross-entropy of the softmax, as in DPR (Karpukhin et al. 2020), of 20 times a query's cosines
    with the positives and negatives of all rows that are computed together (a micro-batch; under pmap, those
    of one device). triplet: hinge loss by which the positive's cosine is to exceed the negative's by 0.2
    (Schroff et al. 2015).
    """

    ranking_loss: RankingLoss

    @property
    def module(self) -> nn.Module:
        return heads.EmbeddingHead(self.encoder_config, self.features)

    def example_batch(self) -> dict[str, jax.Array]:
        return _example_inputs((1, 3, 2))

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        real = _real_rows(batch)
        query, positive, *negatives = jnp.moveaxis(outputs, 1, 0)
        if self.ranking_loss == "triplet":
            gap = (query * positive).sum(-1) - (query * negatives[0]).sum(-1)
            loss = jnp.maximum(_MARGIN - gap, 0)
            return {"loss": (loss * real).sum(), "correct": ((gap > 0) * real).sum()}
        candidates = jnp.concatenate([positive, *negatives])
        is_there = jnp.tile(real, 1 + len(negatives)) > 0
        scores = jnp.where(is_there, _SCALE * query @ candidates.T, heads.IMPOSSIBLE)
        return _classes(scores, jnp.arange(len(query)), real)


def make_task(config: FineTuningConfig) -> FineTuningTask:
    """The task of a run."""
    depth: dict[str, Any] = {"rates": config.rates, "features": config.features}
    match config.kind:
        case "classification":
            return Classification(config.model, config.num_labels, **depth)
        case "relation":
            return RelationClassification(config.model, config.num_labels, **depth)
        case "tagging":
            return Tagging(config.model, config.num_labels, **depth)
        case "regression":
            return Regression(config.model, **depth)
        case "choice":
            return MultipleChoice(config.model, **depth)
        case "spans":
            return SpanExtraction(config.model, **depth)
        case "in_batch_ranking":
            return Ranking(config.model, "in_batch", **depth)
        case "triplet_ranking":
            return Ranking(config.model, "triplet", **depth)


def _classes(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    loss, correct = cross_entropy(logits, labels)
    return {"loss": (loss * weights).sum(), "correct": (correct * weights).sum().astype(jnp.float32)}


def _real_rows(batch: Batch) -> jax.Array:
    """float32 [R]: 1 for real rows, 0 for padding rows."""
    sequences, width = heads.sequences_of(batch)
    return is_instance(sequences).reshape(-1, width).any(axis=1).astype(jnp.float32)


def _example_inputs(shape: tuple[int, ...] = (1, 2)) -> dict[str, jax.Array]:
    ids = jnp.zeros(shape, jnp.int32)
    return {"input_ids": ids, "input_mask": ids, "segment_ids": ids}
