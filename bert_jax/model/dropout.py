"""Dropout that draws 16 random bits an element.

Random bits are a large part of a dropout layer's time. 16 of them place the keep probability
within 1/65536 of the one asked for, and what survives is scaled by the probability that is really
used, so the expectation is exact. Each 32-bit word of the generator serves two elements.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

_RESOLUTION = 1 << 16


class Dropout(nn.Module):
    """Zeroes each element with probability `rate` and scales the others up to keep the mean.

    The key comes from the module's "dropout" stream. Arrays have at least two axes.
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        if deterministic or self.rate == 0:
            return x
        dropped = round(self.rate * _RESOLUTION)
        kept = _random_16_bits(self.make_rng("dropout"), x.shape) >= dropped
        return jnp.where(kept, x * (_RESOLUTION / (_RESOLUTION - dropped)), 0).astype(x.dtype)


def _random_16_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 of the given shape, uniform below 2**16."""
    # Words are drawn for half of the last axis but one, whose two halves share them: an axis
    # that accelerators neither tile in an awkward way nor spread over devices.
    *outer, rows, columns = shape
    words = jax.random.bits(key, (*outer, (rows + 1) // 2, columns), jnp.uint32)
    halves = jnp.concatenate([words & (_RESOLUTION - 1), words >> 16], axis=-2)
    return jax.lax.slice_in_dim(halves, 0, rows, axis=-2)
