"""Rotary positions as a TPU kernel, which reads and writes queries or keys once.

XLA computes the halves of each head apart, and puts them together in a pass of its own. Here they are parts
of an array in the chip's vector memory.

Shapes: B batch, N heads, K head width, T length. Positions are the last axis, as in the attention kernel.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.model.attention_tiling import LANES, largest_divisor

_SUBLANES = 16  # of bfloat16
# Most elements of one step: those that come and go, with the tables, fit the vector memory.
_MOST = 16 * 64 * 512


def fits(length: int, head_width: int, dtype: jax.typing.DTypeLike) -> bool:
    """Whether the kernel takes arrays [B, N, K, T] of these sizes."""
    return (
        length % LANES == 0
        and head_width % (2 * _SUBLANES) == 0
        and head_width * length <= _MOST
        and dtype == jnp.bfloat16
    )


def heads_of_step(heads: int, width: int, length: int) -> int:
    """How many of the heads of a row one step rotates."""
    return largest_divisor(heads, _MOST // (width * length))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array, interpret: bool) -> jax.Array:
    """Places i and i + K/2 of each head, rotated in float32.

    Args:
      x: [B, N, K, T].
      cos: float32 [B, K / 2, T], or [1, K / 2, T] for all rows; no gradient flows into it.
      sin: the same.
      interpret: compute it with jax operations, on any platform, for tests.

    Returns:
      An array as `x`.
    """
    return _rotate(x, cos, sin, interpret)


def _rotate(x: jax.Array, cos: jax.Array, sin: jax.Array, interpret: bool) -> jax.Array:
    batch, heads, width, length = x.shape
    together = heads_of_step(heads, width, length)
    some_heads = pl.BlockSpec((1, together, width, length), lambda b, n: (b, n, 0, 0))
    table = pl.BlockSpec((1, width // 2, length), lambda b, n: (b if len(cos) > 1 else 0, 0, 0))
    call = pl.pallas_call(
        _rotate_heads,
        grid=(batch, heads // together),
        in_specs=[some_heads, table, table],
        out_specs=some_heads,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        name="rotation",
        interpret=interpret,
    )
    return call(x, cos, sin)


def _rotate_heads(x, cos, sin, output) -> None:  # type: ignore[no-untyped-def]
    half = x.shape[2] // 2
    for head in range(x.shape[1]):
        first, second = (x[0, head, part].astype(jnp.float32) for part in (slice(half), slice(half, None)))
        output[0, head, :half] = (first * cos[0] - second * sin[0]).astype(output.dtype)
        output[0, head, half:] = (second * cos[0] + first * sin[0]).astype(output.dtype)


def _rotate_back(interpret, tables, gradient):  # type: ignore[no-untyped-def]
    cos, sin = tables
    return _rotate(gradient, cos, -sin, interpret), None, None


rotate.defvjp(lambda x, cos, sin, interpret: (_rotate(x, cos, sin, interpret), (cos, sin)), _rotate_back)
