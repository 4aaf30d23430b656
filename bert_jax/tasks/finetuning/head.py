"""A head on a pretrained encoder: what every task's own head, with its loss in sums, is made from.

Shapes: R rows with C sequences each, in B lines of T positions; W width, L labels. In a packed batch a line
has places for K rows, some of them empty (`bert_jax.model.packed_rows`), and R is B x K; otherwise a line
holds one row, or one of its sequences. Submodules are named as in `BertForPreTraining`, so that its
parameters are found by path.

Batches are those of `data_pipeline.tasks.finetuning.batches`: `input_ids`, `input_mask`, `segment_ids` int32
[B, T] or [B, C, T], and the targets that each head names for its R rows. A row whose `input_mask` is all
zero is padding and is ignored. In a packed batch targets are [B, K, ...], and empty places are ignored.

Parameters are decayed unless their path contains one of `OptimizerConfig.decay_exclusions`: the
names of thresholds and offsets should have `bias` in them.
"""

import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.cross_entropy import cross_entropy
from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.model.linear import Linear
from bert_jax.model.packed_rows import is_instance
from bert_jax.model.size import encoder_flops
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch, Metric, Sums
from data_pipeline.tasks.finetuning.rows import FEATURES, Rows

IMPOSSIBLE = -10000.0
"""Score of a missing choice or of a padded position, whose probability is then exactly 0."""


@dataclasses.dataclass(frozen=True)
class Head(abc.ABC):
    """What a fine-tuning learns (`bert_jax.task.Task`); its loss is a mean over targets: rows, or tokens."""

    config: FineTuningConfig
    metrics: tuple[Metric, ...] = ()

    kind: ClassVar[str]
    """What it does: classification, spans, ...; heads of one kind have parameters of one form."""
    exports_as: ClassVar[TransformersHead | None] = None
    """The head in transformers; None if it has none. The layer that is exported is `classifier`."""
    rows_compete: ClassVar[bool] = False
    """Whether rows that are computed together (in a micro-batch; under pmap on a device) are each other's
    negatives."""

    @property
    @abc.abstractmethod
    def module(self) -> nn.Module: ...

    @abc.abstractmethod
    def example_batch(self) -> dict[str, jax.Array]: ...

    @abc.abstractmethod
    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        """`loss`, and `correct` if there is an accuracy: sums over targets."""

    def abstract_params(self) -> Mapping[str, Any]:
        """Shapes and dtypes of all parameters; computes nothing."""
        init = functools.partial(self.module.init, deterministic=True)
        return jax.eval_shape(init, jax.random.key(0), self.example_batch())["params"]

    def check(self, rows: Rows) -> None:  # noqa: B027  # most heads learn from all
        """Raises UserError if the head cannot learn from such rows with its configuration."""

    @property
    def may_pack(self) -> bool:
        """Whether rows may share lines without changing the loss.

        They may not if rows compete and a batch is split, since other rows would be computed together.
        """
        parallel = self.config.parallel
        is_split = parallel.accumulation_steps > 1 or parallel.mode == "pmap"
        return self.config.pack and not (self.rows_compete and is_split)

    def denominators(self, batch: Batch) -> Sums:
        rows, tokens = real_rows(batch), batch["input_mask"].astype(jnp.float32)
        return {"examples": rows.sum(), "tokens": tokens.sum(), "targets": self.count_targets(batch)}

    def count_targets(self, batch: Batch) -> jax.Array:
        """float32 scalar: the number of targets that the loss is a mean over."""
        return real_rows(batch).sum()

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        return sums["loss"] / jnp.maximum(totals["targets"], 1.0)

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        targets = max(sums["targets"], 1.0)
        means = {"loss": sums["loss"] / targets}
        if "correct" in sums:
            in_percent = any(metric.name == "accuracy" and metric.in_percent for metric in self.metrics)
            means["accuracy"] = (100 if in_percent else 1) * sums["correct"] / targets
        return means

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        return self.config.rates.scale(path, self.config.model.num_layers)

    def flops(self, batch: Batch) -> int:
        model, ids = self.config.model, batch["input_ids"]
        length = ids.shape[-1]
        a_row = self.config.features.lstm_flops(model.hidden_size, length)
        if FEATURES not in batch:
            a_row += encoder_flops(model, length, self.config.rates.frozen_layers)
        return ids.size // length * a_row


def sequences_of(batch: Batch) -> tuple[Batch, int]:
    """The inputs, with each of a row's C sequences as an instance of its own, in order; and C."""
    names = ("input_ids", "input_mask", "segment_ids", FEATURES)
    inputs = {name: batch[name] for name in names if name in batch}
    if "instance_starts" in batch:
        starts = batch["instance_starts"]
        width = starts.shape[2] if starts.ndim > 2 else 1
        return {**inputs, "instance_starts": starts.reshape(len(starts), -1)}, width
    ids = batch["input_ids"]
    width = ids.shape[1] if ids.ndim > 2 else 1
    return {name: x.reshape(-1, *x.shape[ids.ndim - 1 :]) for name, x in inputs.items()}, width


def real_rows(batch: Batch) -> jax.Array:
    """float32 [R]: 1 for real rows, 0 for padding rows."""
    sequences, width = sequences_of(batch)
    return is_instance(sequences).reshape(-1, width).any(axis=1).astype(jnp.float32)


def classifier(config: ModelConfig, num_labels: int) -> Linear:
    """The output layer. Its scores are always float32, as in masked LM: bfloat16 would tie close ones."""
    return Linear(config, (num_labels,), result=jnp.float32, name="classifier")


def class_sums(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    """Weighted sums of cross-entropies and of correct predictions, as `Head.numerators` returns them."""
    loss, correct = cross_entropy(logits, labels)
    return {"loss": (loss * weights).sum(), "correct": (correct * weights).sum().astype(jnp.float32)}


def example_inputs(shape: tuple[int, ...] = (1, 2)) -> dict[str, jax.Array]:
    """The inputs of `Head.example_batch`, without targets."""
    ids = jnp.zeros(shape, jnp.int32)
    return {"input_ids": ids, "input_mask": ids, "segment_ids": ids}
