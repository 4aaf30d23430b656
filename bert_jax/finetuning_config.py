"""The configuration of a fine-tuning run, which is written to the `config.json` of its directory.

Needs the standard library alone, as `config.py` does, so that flags parse fast.
"""

import dataclasses
from typing import Literal

from bert_jax.config import RunConfig
from bert_jax.model_config import ModelConfig
from data_pipeline.checks import check_above_zero, check_positive, check_types
from data_pipeline.errors import UserError

Combination = Literal["concat", "sum", "weighted", "each"]


@dataclasses.dataclass(frozen=True)
class LayerRates:
    """Learning rates by depth: embeddings are 0, layers 1 to L, head and pooler L + 1."""

    layer_decay: float = 1.0
    """Learning rate of a layer, as a fraction of the rate of the one above (Clark et al. 2020: 0.8, 0.9)."""
    frozen_layers: int | None = None
    """Number of lowest layers to freeze, besides the embeddings; 0: the embeddings alone; None: nothing."""

    def __post_init__(self) -> None:
        check_types(self, "")
        if not 0 < self.layer_decay <= 1:
            raise UserError(f"layer_decay is {self.layer_decay}; it must be above 0 and at most 1")
        if self.frozen_layers is not None and self.frozen_layers < 0:
            raise UserError(f"frozen_layers is {self.frozen_layers}; it must be at least 0")

    def scale(self, path: tuple[str, ...], num_layers: int) -> float:
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
    """How to combine several layers. weighted: a sum whose weights are learned (Peters et al. 2018).
    each: not at all; there are trials on each layer alone, without the pooler."""
    lstm_layers: int = 0
    """BiLSTM layers on top; 2 in the paper's Table 7."""
    lstm_width: int = 768
    """Units of each direction of the BiLSTM."""

    def __post_init__(self) -> None:
        check_types(self, "features.")
        if not self.layers:
            raise UserError("layers is empty; name at least one, such as -1")
        if self.combine == "each" and min(self.layers) < 0:
            raise UserError(
                f"layers names {min(self.layers)}; with combine each, count from 0, which is the embeddings"
            )
        if self.lstm_layers < 0 or self.lstm_width < 1:
            raise UserError("lstm_layers must be at least 0 and lstm_width at least 1")

    def are_plain(self, num_layers: int) -> bool:
        """Whether the head sees the last layer unchanged; without a BiLSTM, `lstm_width` has no effect."""
        is_last = self.layers in ((-1,), (num_layers,)) and self.combine in ("concat", "sum")
        return is_last and not self.lstm_layers

    def lstm_flops(self, hidden_size: int, length: int) -> int:
        """FLOPs of training the BiLSTM on one row, counted as `Objective.flops` says; 0 without one.

        Args:
          hidden_size: of the encoder.
          length: of the row, in tokens.
        """
        inputs = hidden_size * (len(self.layers) if self.combine == "concat" else 1)
        weights = 0
        for _ in range(self.lstm_layers):
            weights += 2 * 4 * self.lstm_width * (inputs + self.lstm_width)
            inputs = 2 * self.lstm_width
        return 3 * 2 * length * weights

    def check(self, num_layers: int) -> None:
        """Raises UserError if `layers` names one that the model does not have."""
        for layer in self.layers:
            if not -num_layers - 1 <= layer <= num_layers:
                raise UserError(f"layers names {layer}; the model has {-num_layers - 1} to {num_layers}")


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(RunConfig):
    """Configuration of one run: a model, what its head sees, and how it is trained."""

    model: ModelConfig = ModelConfig()
    num_labels: int = 2
    """Number of labels that the head tells apart; 1 where the data has none."""
    rates: LayerRates = LayerRates()
    features: FeatureConfig = FeatureConfig()
    """What the head sees of the encoder."""
    warmup_proportion: float = 0.1
    """Fraction of the steps in which the learning rate rises."""
    pack: bool = True
    """Whether short rows may share lines of training batches (`data_pipeline.tasks.finetuning.packing`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, "")
        check_positive("num_labels", self.num_labels)
        if not 0 <= self.warmup_proportion < 1:
            raise UserError(
                f"warmup_proportion is {self.warmup_proportion:g}; it must be at least 0 and below 1"
            )
        layers, rates = self.model.num_layers, self.rates
        self.features.check(layers)
        has_one_rate = rates.layer_decay == 1 and rates.frozen_layers in (None, 0, layers)
        if self.model.num_distinct_layers != layers and not has_one_rate:
            raise UserError(
                "the model's layers share parameters (model.layer_groups); layer_decay must be 1, and "
                f"frozen_layers None, 0 or {layers}"
            )
        if (rates.frozen_layers or 0) > layers:
            raise UserError(f"frozen_layers is {rates.frozen_layers}; the model has {layers} layers")

    @property
    def encoder(self) -> ModelConfig:
        """The model's configuration; without dropout if all layers are frozen, so that features are fixed."""
        if self.rates.frozen_layers != self.model.num_layers:
            return self.model
        return dataclasses.replace(self.model, dropout_rate=0.0, attention_dropout_rate=0.0)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One choice of hyperparameters, such as one of the paper's grid."""

    learning_rate: float
    batch_size: int
    epochs: float
    seed: int
    layer: int | None = None
    """The layer that the head sees; None: as `FeatureConfig.layers` says."""

    def __post_init__(self) -> None:
        check_positive("batch_size", self.batch_size)
        for name in ("learning_rate", "epochs"):
            check_above_zero(name, getattr(self, name))

    @property
    def name(self) -> str:
        """Name of the trial's directory; trials of different hyperparameters have different names."""
        rate, epochs = (f"{value!r}".removesuffix(".0") for value in (self.learning_rate, self.epochs))
        layer = "" if self.layer is None else f"layer{self.layer}-"
        return f"{layer}lr{rate}-batch{self.batch_size}-epochs{epochs}-seed{self.seed}"


@dataclasses.dataclass(frozen=True)
class TransformersHead:
    """Which class of Hugging Face transformers computes the same as a head, so that it can be exported."""

    class_name: str
    """Name of the class for a BERT; other families have one of their own for the same."""
    problem_type: str | None = None
    """transformers' setting of that name, such as `regression`."""


def _depth(path: tuple[str, ...], num_layers: int) -> int:
    match path:
        case ("encoder", "left_to_right" | "right_to_left", *rest):
            return _depth(("encoder", *rest), num_layers)
        case ("encoder", "embeddings" | "embeddings_project", *_):
            return 0
        case ("encoder", "final_layer_norm", *_):
            return num_layers
        case ("encoder", layer, *_):
            return int(layer.removeprefix("layer_")) + 1
    return num_layers + 1
