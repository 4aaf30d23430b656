"""The feed-forward sublayer: one function for each `ModelConfig.feed_forward`.

They are called in a layer's compact scope, which gets their parameters.
"""

import flax.linen as nn
import jax

from bert_jax.model.linear import Linear
from bert_jax.model.normalization import inside_sublayer
from bert_jax.model_config import ModelConfig


def feed_forward(config: ModelConfig, x: jax.Array) -> jax.Array:
    """[..., D] for [..., D], without dropout and without the residual."""
    wide = Linear(config, (config.intermediate_size,), name="intermediate")(x)
    wide = inside_sublayer(config, "intermediate_layer_norm")(_activated(config, x, wide))
    return Linear(config, (config.hidden_size,), name="output")(wide)


def activation(config: ModelConfig, x: jax.Array) -> jax.Array:
    """GELU, by its tanh approximation or exact, ReLU, or SiLU, x * sigmoid(x)."""
    match config.activation:
        case "gelu_tanh":
            return nn.gelu(x, approximate=True)
        case "gelu_exact":
            return nn.gelu(x, approximate=False)
        case "relu":
            return nn.relu(x)
        case "silu":
            return nn.silu(x)


def _activated(config: ModelConfig, x: jax.Array, wide: jax.Array) -> jax.Array:
    """The nonlinear part, [..., F], of `wide` [..., F]; a gate sees the input `x` too (Shazeer 2020, "GLU
    variants improve Transformer", arXiv 2002.05202)."""
    if config.feed_forward == "dense":
        return activation(config, wide)
    gate = Linear(config, (config.intermediate_size,), name="gate")(x)
    match config.feed_forward:
        case "geglu":
            return activation(config, gate) * wide
        case "swiglu":
            return nn.silu(gate) * wide
