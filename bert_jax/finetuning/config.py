"""The configuration of a fine-tuning run, which is written to the `config.json` of its folder.

Needs the standard library alone, as `bert_jax.config` does, so that flags parse fast.
"""

import dataclasses
from typing import Literal

from bert_jax.config import ModelConfig, OptimizerConfig, RunConfig, check_above_zero, check_positive
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
Combination = Literal["concat", "sum", "weighted"]


@dataclasses.dataclass(frozen=True)
class LayerRates:
    """Learning rates by depth: embeddings are 0, layers 1 to L, head and pooler L + 1."""

    layer_decay: float = 1.0
    """Learning rate of a layer as a share of that of the layer above; 0.8 or 0.9 in Clark et al. (2020)."""
    frozen_layers: int | None = None
    """Number of lowest layers to freeze, besides the embeddings; 0: the embeddings alone; None: nothing."""

    def __post_init__(self) -> None:
        if not 0 < self.layer_decay <= 1:
            raise UserError(f"layer_decay is {self.layer_decay}; it must be above 0 and at most 1")
        if self.frozen_layers is not None and self.frozen_layers < 0:
            raise UserError(f"frozen_layers is {self.frozen_layers}; it must be at least 0")

    def share(self, path: tuple[str, ...], num_layers: int) -> float:
        """The factor of the learning rate for the parameter at a path of the tree."""
        depth = _depth(path, num_layers)
        if self.frozen_layers is not None and depth <= self.frozen_layers:
            return 0.0
        return self.layer_decay ** (num_layers + 1 - depth)


@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """What the head sees of the encoder. The default is the last layer alone, as in fine-tuning."""

    layers: tuple[int, ...] = (-1,)
    """Numbers of the layers to use: 0 is the embedding output, -1 the last layer."""
    combine: Combination = "concat"
    """How to combine several layers. weighted: a sum whose weights are learnt (Peters et al. 2018)."""
    lstm_layers: int = 0
    """BiLSTM layers on top; 2 in the paper."""
    lstm_width: int = 768
    """Units of each direction of the BiLSTM."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise UserError("layers is empty; name at least one, such as -1")
        if self.lstm_layers < 0 or self.lstm_width < 1:
            raise UserError("lstm_layers must be at least 0 and lstm_width at least 1")

    def are_plain(self, num_layers: int) -> bool:
        """Whether the head sees the last layer unchanged; without a BiLSTM, `lstm_width` has no effect."""
        return self.layers in ((-1,), (num_layers,)) and not self.lstm_layers and self.combine != "weighted"

    def check(self, num_layers: int) -> None:
        """Raises UserError if `layers` names one that the model does not have."""
        for layer in self.layers:
            if not -num_layers - 1 <= layer <= num_layers:
                raise UserError(f"layers names {layer}; the model has {-num_layers - 1} to {num_layers}")


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


def _depth(path: tuple[str, ...], num_layers: int) -> int:
    match path:
        case ("encoder", "embeddings", *_):
            return 0
        case ("encoder", layer, *_):
            return int(layer.removeprefix("layer_")) + 1
    return num_layers + 1
