"""The size of an encoder and the amount of its arithmetic: plain sums over its shape, without jax.

What a part of the encoder adds is its row in the tables here.
"""

from collections.abc import Mapping

from bert_jax.model_config import (
    FeedForward,
    FurtherNormalization,
    ModelConfig,
    Normalization,
    NormalizationPlace,
    Positions,
)

POSITION_ROWS: Mapping[Positions, str | None] = {
    "learnt": "max_position_embeddings",
    "rotary": None,
    "sinusoidal": None,
    "none": None,
}
"""Kind of positions -> the setting with its number of rows of the embeddings' width; None: it has no rows."""

_FEED_FORWARD_KERNELS: Mapping[FeedForward, int] = {"dense": 2, "geglu": 3, "swiglu": 3}
"""Kind of feed-forward layer -> its kernels of hidden size x intermediate size; all but one widen."""

_HAS_BIAS: Mapping[Normalization, bool] = {"layer_norm": True, "rms_norm": False}
"""Kind of normalization -> whether it has a bias beside its scale, where `ModelConfig.biases` allows it."""

_HAS_FINAL_NORM: Mapping[NormalizationPlace, bool] = {"post": False, "pre": True, "normformer": True}
"""Place of normalization -> whether there is one after the last layer."""

_HAS_INNER_NORMS: Mapping[NormalizationPlace, bool] = {"post": False, "pre": False, "normformer": True}
"""Place of normalization -> whether each layer has two more, of hidden and of intermediate size."""

_HEAD_NORMS: Mapping[FurtherNormalization, int] = {"same": 2, "none": 0}
"""Normalization of queries and keys -> normalizations of the width of a head, in each layer."""

SPAN_POSITIONS, SPAN_POSITION_WIDTH = 15, 200
"""Shape of the table of a span's positions in `SpanBoundaryHead` (`--max-pair-targets` and
`--pair-positional-embedding-size` in SpanBERT's own commands)."""


def encoder_parameters(model: ModelConfig) -> int:
    """Parameters of embeddings and layers, without pooler and heads."""
    return embedding_parameters(model) + layers_parameters(model)


def embedding_parameters(model: ModelConfig) -> int:
    """Parameters of the embeddings and their normalization."""
    rows = model.vocab_size + model.type_vocab_size
    if setting := POSITION_ROWS[model.positions]:
        rows += getattr(model, setting)
    has_norm = model.embedding_normalization == "same"
    return rows * model.embedding_width + has_norm * norm_parameters(model, model.embedding_width)


def layers_parameters(model: ModelConfig) -> int:
    """Parameters of the encoder but for the embeddings; those that layers share are counted once."""
    return sum(map(_stack_parameters, model.stacks))


def _stack_parameters(model: ModelConfig) -> int:
    width, inner = model.hidden_size, model.intermediate_size
    kernels = _FEED_FORWARD_KERNELS[model.feed_forward]
    layer = 4 * width * width + kernels * width * inner
    if model.biases == "all":
        layer += 4 * width + (kernels - 1) * inner + width
    layer += 2 * norm_parameters(model, width)
    if _HAS_INNER_NORMS[model.normalization_place]:
        layer += norm_parameters(model, width) + norm_parameters(model, inner)
    layer += _HEAD_NORMS[model.query_key_normalization] * norm_parameters(model, model.head_width)
    further_norms = _HAS_FINAL_NORM[model.normalization_place] - model.has_normalized_input
    total = model.num_distinct_layers * layer + further_norms * norm_parameters(model, width)
    if model.embedding_width != width:
        total += dense_parameters(model, model.embedding_width, width)
    return total


def norm_parameters(model: ModelConfig, width: int) -> int:
    """Parameters of a normalization over `width`: a scale, and perhaps a bias."""
    return width * (1 + (_HAS_BIAS[model.normalization] and model.biases != "none"))


def pooler_parameters(model: ModelConfig) -> int:
    """Parameters of the pooler."""
    width = model.hidden_size
    norm = norm_parameters(model, width) if model.pooler == "transform" else 0
    return dense_parameters(model, width, width) + norm


def dense_parameters(model: ModelConfig, inputs: int, outputs: int) -> int:
    """Parameters of a linear layer such as the pooler's: a kernel, and perhaps a bias."""
    return outputs * (inputs + (model.biases == "all"))


def encoder_flops(model: ModelConfig, length: int, frozen_layers: int | None = None) -> int:
    """FLOPs of training the layers on one row, counted as `Objective.flops` says.

    The embeddings and the lowest `frozen_layers` have no backward pass; None: nothing is frozen. Of layers
    with an attention window the scores of their blocks count.
    """
    return sum(_stack_flops(stack, length, frozen_layers) for stack in model.stacks)


def _stack_flops(model: ModelConfig, length: int, frozen_layers: int | None) -> int:
    width, kernels = model.hidden_size, _FEED_FORWARD_KERNELS[model.feed_forward]
    products = 2 * length * (4 * width * width + kernels * width * model.intermediate_size)
    total = 0
    for number in range(model.num_layers):
        layer = products + 4 * num_scores(model.of_layer(number), length) * width
        total += layer if number < (frozen_layers or 0) else 3 * layer
    widening = 2 * length * model.embedding_width * width if model.embedding_width != width else 0
    return total + (3 if frozen_layers is None else 1) * widening


def num_scores(layer: ModelConfig, length: int) -> int:
    """How many attention scores a head computes in a layer (`ModelConfig.of_layer`) for one row."""
    block = layer.attention_block(length)
    return length**2 if block is None else -(-length // block) * 3 * block**2
