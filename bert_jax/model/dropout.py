"""Dropout that draws 16 random bits an element.

Drawing random bits takes a large part of a dropout layer's time. 16 bits place the keep probability
within 1/65536 of the one asked for, and kept elements are scaled by the probability that is really
used, so the expectation is exact. Each 32-bit word of the generator serves two elements.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.mesh import BATCH_AXES, BATCH_SPEC, batch_parts
from bert_jax.model import threefry

RESOLUTION = 1 << 16


class Dropout(nn.Module):
    """Zeroes each element with probability `rate` and scales the others up to keep the mean.

    The key comes from the module's "dropout" stream. The first axis is that of the batch.
    """

    rate: float

    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        return dropout(x, self.rate, self.key(deterministic))

    def key(self, deterministic: bool) -> jax.Array | None:
        """A key for one use, or None if nothing is to be dropped."""
        return None if deterministic or self.rate == 0 else self.make_rng("dropout")


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """`x` with elements zeroed and scaled as by `Dropout`; `x` itself if `key` is None."""
    if key is None:
        return x
    dropped = num_dropped(rate)
    kept = _draw(key, x.shape) >= jnp.uint32(dropped << 16)
    # As a bfloat16 number the scale itself would be wrong: 1.1094 for a rate of 0.1.
    scaled = x.astype(jnp.float32) * scale_up(dropped)
    return jnp.where(kept, scaled, 0).astype(x.dtype)


def num_dropped(rate: float) -> int:
    """How many of the `RESOLUTION` values of 16 bits mean that an element is dropped."""
    return round(rate * RESOLUTION)


def scale_up(dropped: int) -> float:
    """What kept elements are multiplied by, so that the mean stays."""
    return RESOLUTION / (RESOLUTION - dropped)


def _draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """As `_random_16_bits`; with rbg on a mesh, each device draws only the rows that it holds."""
    parts = batch_parts()
    # threefry2x32 bits are drawn for the whole batch, so that they are the same however rows are spread.
    if parts == 1 or shape[0] % parts or not _is_rbg(key):
        return _random_16_bits(key, shape)

    # Left to XLA, each device would draw the bits of the whole batch and keep those of its own rows.
    def draw(key: jax.Array) -> jax.Array:
        own_key = jax.random.fold_in(key, jax.lax.axis_index(BATCH_AXES))
        return _random_16_bits(own_key, (shape[0] // parts, *shape[1:]))

    on_every_device, by_rows = PartitionSpec(), BATCH_SPEC
    return jax.shard_map(draw, in_specs=on_every_device, out_specs=by_rows, axis_names=set(BATCH_AXES))(key)


def _random_16_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 of the given shape whose upper 16 bits are random."""
    # The two rows that share words are neighbours on the first axis: there, unlike on an inner axis,
    # words are split without moving data.
    rows, *others = shape
    bits = _random_bits(key, ((rows + 1) // 2, 1, *others))
    shifts = jnp.array([0, 16], jnp.uint32).reshape(1, 2, *(1 for _ in others))
    return (bits << shifts).reshape(-1, *others)[:rows]


def _random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 random bits; an rbg key on an accelerator takes them from its own generator."""
    if not _is_rbg(key):
        return threefry.random_bits(key, shape)
    hardware = functools.partial(jax.random.bits, shape=shape, dtype=jnp.uint32)
    counters = functools.partial(threefry.random_bits, shape=shape)
    return jax.lax.platform_dependent(key, cpu=counters, default=hardware)


def _is_rbg(key: jax.Array) -> bool:
    return str(jax.random.key_impl(key)) == "rbg"
