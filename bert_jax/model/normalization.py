"""Normalisation: one function for each `ModelConfig.normalization`, and the place of it in a layer.

Weight decay leaves out parameters whose path contains one of `OptimizerConfig.decay_exclusions`; the names
that the encoder gives to normalisations contain "layer_norm".
"""

from collections.abc import Callable

import flax.linen as nn
import jax

from bert_jax.config import ModelConfig


def make_norm(config: ModelConfig, name: str) -> nn.Module:
    """A normalisation over the last axis, its statistics in float32, with parameters under `name`."""
    match config.normalization:
        case "layer_norm":
            return _layer_norm(config, name)


def residual(
    config: ModelConfig, x: jax.Array, sublayer: Callable[[jax.Array], jax.Array], norm_name: str
) -> jax.Array:
    """A sublayer with its residual connection and its normalisation, [B, Q, D] for `x` [B, Q, D].

    To be called in a compact module, which gets the norm's parameters under `norm_name`.
    """
    match config.normalization_place:
        case "post":
            return make_norm(config, norm_name)(x + sublayer(x))


def _layer_norm(config: ModelConfig, name: str) -> nn.LayerNorm:
    """LayerNorm.

    The variance is the mean squared deviation. For bfloat16 activations, whose own rounding is far
    coarser, it is the mean square minus the squared mean, which needs only one pass.
    """
    one_pass = config.dtype == "bfloat16"
    return nn.LayerNorm(
        epsilon=config.layer_norm_epsilon, dtype=config.dtype, use_fast_variance=one_pass, name=name
    )
