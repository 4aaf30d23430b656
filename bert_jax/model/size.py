"""The size of an encoder and the amount of its arithmetic: plain sums over its shape, without jax.

What a part of the encoder adds is its row in the tables here.
"""

from collections.abc import Mapping

from bert_jax.config import FeedForward, ModelConfig, Normalization, Positions

_POSITION_ROWS: Mapping[Positions, str | None] = {"learnt": "max_position_embeddings"}
"""Kind of positions -> the setting that says how many rows of the hidden size it has; None: it has none."""

_FEED_FORWARD_KERNELS: Mapping[FeedForward, int] = {"dense": 2}
"""Kind of feed-forward layer -> its kernels of hidden size x intermediate size; all but one widen."""

_NORMALIZATION_VECTORS: Mapping[Normalization, int] = {"layer_norm": 2}
"""Kind of normalisation -> its parameter vectors of the hidden size: scale and bias."""


def encoder_parameters(model: ModelConfig) -> int:
    """Parameters of embeddings and layers, without pooler and heads."""
    width, inner = model.hidden_size, model.intermediate_size
    norm = _NORMALIZATION_VECTORS[model.normalization] * width
    rows = model.vocab_size + model.type_vocab_size
    if setting := _POSITION_ROWS[model.positions]:
        rows += getattr(model, setting)
    kernels = _FEED_FORWARD_KERNELS[model.feed_forward]
    attention = 4 * (width * width + width) + norm
    feed_forward = kernels * width * inner + (kernels - 1) * inner + width + norm
    return rows * width + norm + model.num_layers * (attention + feed_forward)


def pooler_parameters(model: ModelConfig) -> int:
    """Parameters of the pooler: a square kernel and its bias."""
    return model.hidden_size * (model.hidden_size + 1)


def encoder_flops(model: ModelConfig, length: int, frozen_layers: int = 0) -> int:
    """FLOPs of training the layers on one row, counted as `Objective.flops` says.

    The lowest `frozen_layers` have no backward pass.
    """
    width, kernels = model.hidden_size, _FEED_FORWARD_KERNELS[model.feed_forward]
    layer = 2 * length * (4 * width * width + kernels * width * model.intermediate_size)
    layer += 4 * length * length * width
    return (3 * model.num_layers - 2 * frozen_layers) * layer
