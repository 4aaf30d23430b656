"""Settings of fine-tuning. Needs the standard library alone, so that flags parse fast."""

import dataclasses
from typing import Literal

from data_pipeline.errors import UserError

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


def _depth(path: tuple[str, ...], num_layers: int) -> int:
    match path:
        case ("encoder", "embeddings", *_):
            return 0
        case ("encoder", layer, *_):
            return int(layer.removeprefix("layer_")) + 1
    return num_layers + 1
