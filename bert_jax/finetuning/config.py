"""The configuration of a fine-tuning run, which is written to the `config.json` of its folder."""

import dataclasses
from typing import Any, Literal

import jax

from bert_jax.config import ModelConfig, OptimizerConfig, RunConfig, check_above_zero, check_positive
from bert_jax.finetuning.settings import FeatureConfig, LayerRates
from bert_jax.finetuning.tasks import (
    Classification,
    FineTuningTask,
    MultipleChoice,
    Ranking,
    Regression,
    RelationClassification,
    SpanExtraction,
    Tagging,
)
from data_pipeline.errors import UserError

HeadKind = Literal[
    "classification",
    "regression",
    "choice",
    "spans",
    "tagging",
    "relation",
    "in_batch_ranking",
    "triplet_ranking",
]


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(RunConfig):
    """Configuration of one run: a model, the kind of its head, and how it is trained."""

    kind: HeadKind = "classification"
    model: ModelConfig = ModelConfig()
    num_labels: int = 2
    """Number of labels in classification, tagging and relation."""
    rates: LayerRates = LayerRates()
    features: FeatureConfig = FeatureConfig()
    """What the head sees of the encoder."""
    warmup_proportion: float = 0.1
    """Share of the steps in which the learning rate rises."""
    pack: bool = True
    """Whether short rows may share lines of training batches (`data_pipeline.tasks.bin_packing`)."""

    @property
    def rows_compete(self) -> bool:
        """Whether rows that are computed together (in a micro-batch; under pmap on a device) are each other's
        negatives."""
        return self.kind == "in_batch_ranking"

    @property
    def may_pack(self) -> bool:
        """Whether rows may share lines without changing the loss.

        They may not with a BiLSTM, which would read on from one row to the next, nor if rows compete and a
        batch is split, since other rows would be computed together.
        """
        is_split = self.parallel.accumulation_steps > 1 or self.parallel.mode == "pmap"
        return self.pack and not self.features.lstm_layers and not (self.rows_compete and is_split)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("num_labels", self.num_labels)
        if not 0 <= self.warmup_proportion < 1:
            raise UserError(
                f"warmup_proportion is {self.warmup_proportion:g}; it must be at least 0 and below 1"
            )
        self.features.check(self.model.num_layers)
        if (self.rates.frozen_layers or 0) > self.model.num_layers:
            raise UserError(
                f"frozen_layers is {self.rates.frozen_layers}; the model has {self.model.num_layers} layers"
            )


@dataclasses.dataclass(frozen=True)
class Cell:
    """One choice of hyperparameters: a cell of the paper's grid."""

    learning_rate: float
    batch_size: int
    epochs: float
    seed: int

    def __post_init__(self) -> None:
        check_positive("batch_size", self.batch_size)
        for name in ("learning_rate", "epochs"):
            check_above_zero(name, getattr(self, name))

    @property
    def name(self) -> str:
        """Name of the cell's folder."""
        return f"lr{self.learning_rate:g}-batch{self.batch_size}-epochs{self.epochs:g}-seed{self.seed}"


def make_optimizer_config(base: FineTuningConfig, cell: Cell, num_train_steps: int) -> OptimizerConfig:
    """The optimizer of `base` with the cell's learning rate, and with its warm-up in steps."""
    warmup = int(num_train_steps * base.warmup_proportion)
    return dataclasses.replace(base.optimizer, learning_rate=cell.learning_rate, warmup_steps=warmup)


def check_negatives(config: FineTuningConfig, sequences_per_row: int) -> None:
    """Raises UserError if in-batch ranking would have no negatives to learn from.

    Args:
      sequences_per_row: sequences of a training row; 2 if it has no negative.
    """
    parallel = config.parallel
    parts = jax.device_count() if parallel.mode == "pmap" else 1
    parts *= parallel.accumulation_steps
    if config.rows_compete and sequences_per_row == 2 and config.global_batch_size < 2 * parts:
        raise UserError(
            f"the batch size is {config.global_batch_size}; in_batch without negatives needs two rows or "
            f"more that are computed together, so make it {2 * parts} or more, or give --negative-column"
        )


def check_direction(config: FineTuningConfig) -> None:
    """Raises UserError if a task reads the model at positions where it has not seen the needed text yet."""
    is_blind = config.model.attention == "causal" and not config.features.lstm_layers
    if config.kind == "relation" and is_blind:
        raise UserError(
            "relation reads entities where they begin, and there a left-to-right --model has seen nothing of "
            "them; give one that reads both ways, or --features.lstm-layers 2"
        )


def has_pooler(config: FineTuningConfig) -> bool:
    """Whether the head reads the encoder through BERT's pooler."""
    is_of_texts = config.kind in ("classification", "regression", "choice")
    return is_of_texts and config.features.are_plain(config.model.num_layers)


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
