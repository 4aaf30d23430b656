"""The feed-forward sublayer: one function for each `ModelConfig.feed_forward`.

They are called in a layer's compact scope, which gets their parameters.
"""

import flax.linen as nn
import jax

from bert_jax.config import ModelConfig
from bert_jax.model.linear import Linear


def feed_forward(config: ModelConfig, x: jax.Array) -> jax.Array:
    """[..., D] for [..., D], without dropout and without the residual."""
    match config.feed_forward:
        case "dense":
            return _dense(config, x)


def activation(config: ModelConfig, x: jax.Array) -> jax.Array:
    """GELU, by its tanh approximation or exact."""
    return nn.gelu(x, approximate=config.activation == "gelu_tanh")


def _dense(config: ModelConfig, x: jax.Array) -> jax.Array:
    wide = Linear(config, (config.intermediate_size,), name="intermediate")(x)
    return Linear(config, (config.hidden_size,), name="output")(activation(config, wide))
