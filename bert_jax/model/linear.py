"""The linear layers of the model, contracted in the form that is fastest on the platform.

On CPU, contracting [B, T, D] makes XLA copy arrays into another order to form their gradients; with
rows [B*T, D] it does not, and a training step takes a quarter less time. On TPU the opposite holds:
rows remove the batch axis from the result's layout, and every head's array is copied to restore it.
"""

import functools
import math
from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.model_config import ModelConfig


def initializer(config: ModelConfig) -> jax.nn.initializers.Initializer:
    """A normal distribution of standard deviation `initializer_range`, cut at two standard deviations.

    As in TensorFlow the deviation is the one *before* cutting (modeling.py:376); jax's own
    `truncated_normal(stddev)` means the same.
    """
    return nn.initializers.truncated_normal(config.initializer_range)


Projection: TypeAlias = tuple[jax.Array, jax.Array | None]
"""A product and the bias still to be added by `add_bias`, if there is one."""


def add_bias(product: jax.Array, bias: jax.Array | None) -> jax.Array:
    """`product + bias`, added in float32 and returned in the dtype of `product`; without a bias, the product.

    The bias's gradient is then a float32 sum over all positions; as a bfloat16 sum it would lose most of
    what it adds.
    """
    return product if bias is None else (product.astype(jnp.float32) + bias).astype(product.dtype)


class Linear(nn.Module):
    """`x @ kernel + bias`, contracting the last `num_inputs` axes of x into axes of sizes `features`.

    The kernel has the shape (input axes..., features...), so that heads are an axis of it. Whether there is a
    bias, `config.biases` says, except that output layers always have one.
    """

    config: ModelConfig
    features: tuple[int, ...]
    num_inputs: int = 1
    result: jax.typing.DTypeLike | None = None
    """dtype of the output, which only output layers name; None: `config.dtype`. Input and kernel are always
    cast to `config.dtype`."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return add_bias(*self.parts(x))

    @nn.compact
    def parts(self, x: jax.Array) -> Projection:
        """The product [..., *features] and the bias, float32 [*features] or None, for callers that add them
        themselves."""
        inputs = x.shape[x.ndim - self.num_inputs :]
        kernel = self.param("kernel", initializer(self.config), (*inputs, *self.features))
        has_bias = self.config.biases == "all" or self.result is not None
        bias = self.param("bias", nn.initializers.zeros, self.features) if has_bias else None
        x, kernel = (array.astype(self.config.dtype) for array in (x, kernel))
        rows, whole = (
            functools.partial(form, axes=self.num_inputs, preferred_element_type=self.result)
            for form in (_rows, jnp.tensordot)
        )
        return jax.lax.platform_dependent(x, kernel, cpu=rows, default=whole), bias


def _rows(
    x: jax.Array, kernel: jax.Array, axes: int, preferred_element_type: jax.typing.DTypeLike | None
) -> jax.Array:
    """As `jnp.tensordot`, by a product of two matrices."""
    outer, features = x.shape[: x.ndim - axes], kernel.shape[axes:]
    num_inputs = math.prod(kernel.shape[:axes])
    x, kernel = x.reshape(-1, num_inputs), kernel.reshape(num_inputs, -1)
    product = jnp.matmul(x, kernel, preferred_element_type=preferred_element_type)
    return product.reshape(*outer, *features)
