"""The linear layers of the model, as products of two matrices.

flax's `Dense` on [B, T, D] makes XLA's CPU compiler contract three-dimensional arrays, whose
gradients it can only form after copying them into another order; on rows [B*T, D] it need not,
and a training step takes a quarter less time. TPUs and GPUs do not mind either way.
"""

import math

import flax.linen as nn
import jax

from bert_jax.config import ModelConfig


def initializer(config: ModelConfig) -> jax.nn.initializers.Initializer:
    """A normal of standard deviation `initializer_range`, cut at two standard deviations.

    As in TensorFlow the deviation is the one *before* cutting (modeling.py:376); jax's own
    `truncated_normal(stddev)` means the same.
    """
    return nn.initializers.truncated_normal(config.initializer_range)


class Linear(nn.Module):
    """`x @ kernel + bias` in the compute type, from the last `num_inputs` axes to `features`.

    The kernel has the shape (input axes..., features...), so that heads stay visible in it.
    """

    config: ModelConfig
    features: tuple[int, ...]
    num_inputs: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        inputs = x.shape[x.ndim - self.num_inputs :]
        kernel = self.param("kernel", initializer(self.config), (*inputs, *self.features))
        bias = self.param("bias", nn.initializers.zeros, self.features)
        rows = x.reshape(-1, math.prod(inputs)).astype(self.config.dtype)
        matrix = kernel.reshape(math.prod(inputs), -1).astype(self.config.dtype)
        product = rows @ matrix + bias.reshape(-1).astype(self.config.dtype)
        return product.reshape(*x.shape[: x.ndim - self.num_inputs], *self.features)
