"""Attention of short sequences as one TPU kernel, whose scores never leave the chip's vector memory.

Computed operation by operation, attention reads and writes arrays [B, N, T, T] several times, and at BERT's
lengths these transfers, not the matrix products, take most of the time. Here a step of the kernel takes
whole heads: all their scores fit, so softmax is exact in one pass (no running maximum, unlike kernels for
long sequences). The backward pass recomputes scores from queries and keys, and random bits from counters.

Shapes: B batch, N heads, H heads of one step, K head width, T length (of keys), Q length (of queries).
Positions are the last axis of queries, keys and values, so that they fill the lanes of the chip's registers.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.model.dropout import RESOLUTION
from bert_jax.model.threefry import keep

QueriesKeysValues: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]
"""Queries, keys and values, [B, N, K, T] each."""

# Most scores in one step: these fit the vector memory beside their exponentials, gradients and random bits.
_MOST_SCORES = 512 * 512
_LANES = 128
_SUBLANES = 8


def fits(num_queries: int, length: int, head_width: int, dtype: jax.typing.DTypeLike) -> bool:
    """Whether the kernel takes queries [B, N, K, Q] and keys [B, N, K, T] of these sizes."""
    return (
        num_queries == length
        and length % _LANES == 0
        and length**2 <= _MOST_SCORES
        and head_width % (2 * _SUBLANES) == 0
        and dtype == jnp.bfloat16
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def fused_attention(
    projections: QueriesKeysValues,
    biases: jax.Array,
    score_bias: jax.Array,
    seed: jax.Array,
    num_heads: int,
    dropped: int,
    interpret: bool,
) -> jax.Array:
    """`dropout(softmax(q k / sqrt(K) + score_bias)) v`, softmax in float32.

    Args:
      projections: queries, keys and values before their biases are added.
      biases: [B, N, 3, K], of queries, keys and values. Their gradients are sums over positions, which the
        kernel computes as well; XLA would have to read three arrays again.
      score_bias: float32 [B, T, 1] or, where it depends on the query, [B, T, Q]; no gradient flows
        into it.
      seed: uint32 [4]: two words of a key, the first row's index in the whole batch, and the first head's
        in the whole model. With the position they determine an element's random bits.
      num_heads: heads of the whole model, of which N are here.
      dropped: how many of the `RESOLUTION` values of 16 random bits drop an element.
      interpret: compute it with jax operations, on any platform, for tests.

    Returns:
      [B, N, K, Q] of the projections' type.
    """
    return _fused_forward(projections, biases, score_bias, seed, num_heads, dropped, interpret)[0]


def _fused_forward(projections, biases, score_bias, seed, num_heads, dropped, interpret):  # type: ignore[no-untyped-def]
    biased = tuple(x + biases[:, :, i, :, None] for i, x in enumerate(projections))
    output = jax.ShapeDtypeStruct(biased[0].shape, biased[0].dtype)
    kernel = functools.partial(_forward, num_heads=num_heads, dropped=dropped)
    mixed = _call(kernel, "attention_forward", seed, score_bias, biased, output, interpret)
    return mixed, (biased, score_bias, seed)


def _fused_backward(num_heads, dropped, interpret, kept, gradient):  # type: ignore[no-untyped-def]
    biased, score_bias, seed = kept
    batch, heads, width, _ = gradient.shape
    output = jax.ShapeDtypeStruct(gradient.shape, gradient.dtype)
    sums = jax.ShapeDtypeStruct((batch, heads, _SUBLANES, width), jnp.float32)
    kernel = functools.partial(_backward, num_heads=num_heads, dropped=dropped)
    arrays, outputs = (*biased, gradient), (output, output, output, sums)
    *gradients, sums = _call(kernel, "attention_backward", seed, score_bias, arrays, outputs, interpret)
    return tuple(gradients), sums[:, :, :3].astype(gradient.dtype), None, None


fused_attention.defvjp(_fused_forward, _fused_backward)


def _call(  # type: ignore[no-untyped-def]
    kernel: Callable[..., None], name: str, seed, score_bias, arrays, outputs, interpret: bool
):
    """Runs a kernel on arrays [B, N, ...]; each step takes one row and `heads_of_a_step` whole heads."""
    batch, heads, _, length = arrays[0].shape
    step = heads_of_a_step(heads, length)

    def whole_heads(array) -> pl.BlockSpec:  # type: ignore[no-untyped-def]
        return pl.BlockSpec((1, step, *array.shape[2:]), lambda b, n: (b, n, 0, 0))

    call = pl.pallas_call(
        kernel,
        grid=(batch, heads // step),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((1, *score_bias.shape[1:]), lambda b, n: (b, 0, 0)),
            *map(whole_heads, arrays),
        ],
        out_specs=jax.tree.map(whole_heads, outputs),
        out_shape=outputs,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        name=name,
        interpret=interpret,
    )
    return call(seed, score_bias, *arrays)


def heads_of_a_step(heads: int, length: int) -> int:
    """The largest divisor of `heads` that fits one step; one head of a short sequence is too little work."""
    most = max(_MOST_SCORES // length**2, 1)
    return max(count for count in range(1, heads + 1) if heads % count == 0 and count <= most)


def _forward(seed, score_bias, q, k, v, output, *, num_heads: int, dropped: int) -> None:  # type: ignore[no-untyped-def]
    exponentials_HTQ, inverse_sums = _softmax(_scaled(q[0]), k[0], score_bias[0])
    # The two factors are multiplied first, because there are far fewer sums than scores.
    probabilities_HTQ = exponentials_HTQ * (inverse_sums * _scale_up(dropped))
    probabilities_HTQ = _drop(probabilities_HTQ, seed, num_heads, dropped).astype(output.dtype)
    output[0] = _product(v[0], probabilities_HTQ, 2, 1).astype(output.dtype)


def _backward(  # type: ignore[no-untyped-def]
    seed, score_bias, q, k, v, gradient, dq, dk, dv, sums, *, num_heads: int, dropped: int
) -> None:
    q_HKQ, k_HKT, v_HKT, gradient_HKQ = _scaled(q[0]), k[0], v[0], gradient[0]
    exponentials_HTQ, inverse_sums = _softmax(q_HKQ, k_HKT, score_bias[0])
    softmax_HTQ = exponentials_HTQ * inverse_sums
    probabilities_HTQ = _drop(softmax_HTQ * _scale_up(dropped), seed, num_heads, dropped)
    dv[0] = _product(gradient_HKQ, probabilities_HTQ.astype(dv.dtype), 2, 2).astype(dv.dtype)
    # With d the gradient of the probabilities, that of the scores is p d - softmax * sum(p d).
    weighted_HTQ = probabilities_HTQ * _product(v_HKT, gradient_HKQ, 1, 1)
    dscores_HTQ = weighted_HTQ - softmax_HTQ * weighted_HTQ.sum(axis=1, keepdims=True)
    dscores_HTQ = dscores_HTQ.astype(dq.dtype)
    dq[0] = _scaled(_product(k_HKT, dscores_HTQ, 2, 1)).astype(dq.dtype)
    dk[0] = _product(q_HKQ, dscores_HTQ, 2, 2).astype(dk.dtype)
    sums[0] = sum(_sum_in_row(i, x[0]) for i, x in enumerate((dq, dk, dv)))


def _sum_in_row(row: int, x_HKT: jax.Array) -> jax.Array:
    """float32 [H, 8, K]: one row is the sum over positions, the others are 0. Done as a matrix product."""
    heads, _, length = x_HKT.shape
    rows = jax.lax.broadcasted_iota(jnp.int32, (heads, _SUBLANES, length), 1)
    return _product((rows == row).astype(x_HKT.dtype), x_HKT, 2, 2)


def _scaled(x_HKT: jax.Array) -> jax.Array:
    # The queries (and their gradients) are scaled, as they are fewer than the scores. Exact where K is 64.
    return x_HKT * x_HKT.shape[1] ** -0.5


def _scale_up(dropped: int) -> float:
    return RESOLUTION / (RESOLUTION - dropped)


def _softmax(q_HKQ: jax.Array, k_HKT: jax.Array, score_bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unnormalised softmax over keys, [H, T, Q], and the inverse of its sum, [H, 1, Q].

    Keys come before queries, so that a sum over keys adds whole registers and stays in its query's lane.
    """
    scores_HTQ = _product(k_HKT, q_HKQ, 1, 1) + score_bias
    exponentials_HTQ = jnp.exp(scores_HTQ - scores_HTQ.max(axis=1, keepdims=True))
    return exponentials_HTQ, 1 / exponentials_HTQ.sum(axis=1, keepdims=True)


def _product(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
    """float32 matrix product for each head, contracting the given axis of each factor."""
    axes = (((x_axis,), (y_axis,)), ((0,), (0,)))
    return jax.lax.dot_general(x, y, axes, preferred_element_type=jnp.float32)


def _drop(x_HTQ: jax.Array, seed, num_heads: int, dropped: int) -> jax.Array:  # type: ignore[no-untyped-def]
    """`x_HTQ` with dropped elements set to 0; (key, row, head, position) decides which."""
    if not dropped:
        return x_HTQ
    heads, length, _ = x_HTQ.shape
    row = seed[2] + pl.program_id(0).astype(jnp.uint32)
    first_head = seed[3] + (pl.program_id(1) * heads).astype(jnp.uint32)
    kept = keep(seed[0], seed[1], row * num_heads + first_head, heads, length, dropped)
    return jnp.where(kept, x_HTQ, 0.0)
