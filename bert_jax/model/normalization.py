"""Normalization: one function for each `ModelConfig.normalization`, and the places of it.

Weight decay leaves out parameters whose path contains one of `OptimizerConfig.decay_exclusions`; the names
that the encoder gives to normalizations, of either kind, contain "layer_norm".
"""

from collections.abc import Callable
from typing import TypeAlias

import flax.linen as nn
import jax

from bert_jax.model_config import ModelConfig

Norm: TypeAlias = Callable[[jax.Array], jax.Array]


def make_norm(config: ModelConfig, name: str) -> nn.Module:
    """A normalization over the last axis, its statistics in float32, with parameters under `name`."""
    match config.normalization:
        case "layer_norm":
            # The variance is the mean squared deviation. For bfloat16 activations, whose own rounding is far
            # coarser, it is the mean square minus the squared mean, which needs only one pass.
            return nn.LayerNorm(
                epsilon=config.layer_norm_epsilon,
                dtype=config.dtype,
                use_bias=config.biases != "none",
                use_fast_variance=config.dtype == "bfloat16",
                name=name,
            )
        case "rms_norm":
            return nn.RMSNorm(epsilon=config.layer_norm_epsilon, dtype=config.dtype, name=name)


def around_sublayer(config: ModelConfig, name: str) -> tuple[Norm, Norm]:
    """What is applied before a sublayer and after its residual sum: `after(x + sublayer(before(x)))`.

    To be called in a compact module, which gets the norm's parameters under `name`.
    """
    norm = make_norm(config, name)
    match config.normalization_place:
        case "post":
            return unchanged, norm
        case "pre" | "normformer":
            return norm, unchanged


def inside_sublayer(config: ModelConfig, name: str) -> Norm:
    """What is applied to the output of attention, and in the feed-forward layer before its last product
    (Shleifer et al. 2021, "NormFormer", arXiv 2110.09456)."""
    match config.normalization_place:
        case "post" | "pre":
            return unchanged
        case "normformer":
            return make_norm(config, name)


def after_last_layer(config: ModelConfig, name: str) -> Norm:
    """What is applied to the output of the last layer, with parameters under `name`."""
    match config.normalization_place:
        case "post":
            return unchanged
        case "pre" | "normformer":
            return make_norm(config, name)


def after_embeddings(config: ModelConfig, name: str) -> Norm:
    """What is applied to the sum of the embeddings, which it also casts to `config.dtype`."""
    match config.embedding_normalization:
        case "same":
            return make_norm(config, name)
        case "none":
            return lambda x: x.astype(config.dtype)


def of_queries_and_keys(config: ModelConfig, name: str) -> Norm | None:
    """What is applied to the queries or the keys, over the width of each head; None: nothing."""
    match config.query_key_normalization:
        case "same":
            return make_norm(config, name)
        case "none":
            return None


def unchanged(x: jax.Array) -> jax.Array:
    """`x` itself, where there is no normalization."""
    return x
