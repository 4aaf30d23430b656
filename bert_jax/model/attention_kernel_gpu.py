"""Attention as GPU kernels in Triton, whose scores never leave the chip.

Keys are taken in blocks with a running maximum (FlashAttention-2, Dao 2023). XLA draws dropout's bits
beforehand, one for each score: a step loads the words of its queries once, and each block of keys has its own
bit in every word. Nothing is added up in an order that may change, so results are the same each time.

Shapes: B batch, N heads, K head width, T length, Q queries of one step.
"""

import functools
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from bert_jax.model.dropout import RESOLUTION, scale_up
from bert_jax.model.threefry import threefry2x32

try:
    from jax.experimental.pallas import triton
except ImportError:  # jax 0.11 announces that a later version will not have it
    triton = None  # type: ignore[assignment]

QueriesKeysValues: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]
"""Queries, keys and values, [B, T, N, K] each."""

# Queries of one step, and keys of one block. Steps of 128 queries are 4% faster forward, 9% slower backward.
_BLOCK = 64
_LARGEST_WORD = 32  # bits, one for each block of keys
_DRAWS = 4  # of 16 bits, in two words of the generator
_FIRST_CAPABILITY = 8.0  # CUDA's compute capability


def fits(num_queries: int, length: int, head_width: int, dtype: jax.typing.DTypeLike) -> bool:
    """Whether the kernel takes queries [B, Q, N, K] and keys [B, T, N, K] of these sizes, on GPUs present."""
    return (
        triton is not None
        and _gpus_multiply_bfloat16()
        and num_queries == length
        and length % _BLOCK == 0
        and length <= _BLOCK * _LARGEST_WORD
        and head_width in (16, 32, 64)
        and dtype == jnp.bfloat16
    )


def _gpus_multiply_bfloat16() -> bool:
    """False where a GPU of this process is older than an A100, for which Triton has no such products."""
    capabilities = [device.compute_capability for device in jax.local_devices() if device.platform == "gpu"]
    # Those of AMD have a name there, and another compiler.
    return all(float(x) >= _FIRST_CAPABILITY for x in capabilities if not x.startswith("gfx"))


def fused_attention(
    projections: QueriesKeysValues,
    score_bias: jax.Array,
    seed: jax.Array,
    num_heads: int,
    dropped: int,
    interpret: bool,
) -> jax.Array:
    """`dropout(softmax(q k / sqrt(K) + score_bias)) v`, softmax in float32.

    Args:
      projections: queries, keys and values, their biases added.
      score_bias: float32 [B, 1, T] or, where it depends on the query, [B, T, T], queries first; no gradient
        flows into it.
      seed: uint32 [4]: two words of a key, the first row's index in the whole batch, and the first head's
        in the whole model. With the position they determine an element's random bits.
      num_heads: heads of the whole model, of which N are here.
      dropped: how many of the `RESOLUTION` values of 16 random bits drop an element.
      interpret: compute it with jax operations, on any platform, for tests.

    Returns:
      [B, T, N, K] of the projections' type.
    """
    batch, length, heads, _ = projections[0].shape
    words = keep_words(seed, (batch, heads, length), num_heads, dropped) if dropped else None
    return _attention(projections, score_bias, words, dropped, interpret)


def keep_words(seed: jax.Array, shape: tuple[int, int, int], num_heads: int, dropped: int) -> jax.Array:
    """Which scores are kept: unsigned [B, N, T, 64]; bit i of a query's word j is that of key 64 i + j.

    Args:
      seed: as of `fused_attention`; `num_heads` and `dropped` likewise.
      shape: B, N and T.
      num_heads: heads of the whole model.
      dropped: draws of 16 bits that drop an element.
    """
    num_blocks = shape[2] // _BLOCK
    row, head, query, word = (
        jax.lax.broadcasted_iota(jnp.uint32, (*shape, _BLOCK), axis) for axis in range(4)
    )
    group = ((seed[2] + row) * num_heads + seed[3] + head) * -(-num_blocks // _DRAWS)
    kept = jnp.zeros((*shape, _BLOCK), jnp.uint32)
    for first in range(0, num_blocks, _DRAWS):
        counter = ((group + first // _DRAWS) * _BLOCK + word, query)
        random = threefry2x32((seed[0], seed[1]), counter)
        draws = [draw for bits in random for draw in (bits >> 16, bits & jnp.uint32(RESOLUTION - 1))]
        for block, draw in enumerate(draws[: num_blocks - first], start=first):
            kept |= (draw >= dropped).astype(jnp.uint32) << block
    width = next(bits for bits in (8, 16, _LARGEST_WORD) if num_blocks <= bits)
    return kept.astype(f"uint{width}")


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(projections, score_bias, words, dropped: int, interpret: bool):  # type: ignore[no-untyped-def]
    return _attention_forward(projections, score_bias, words, dropped, interpret)[0]


def _attention_forward(projections, score_bias, words, dropped: int, interpret: bool):  # type: ignore[no-untyped-def]
    queries, keys, values = projections
    batch, length, heads, _ = queries.shape
    log_sums = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    inputs = {"bias": (score_bias, _bias_of_queries(score_bias)), "q": (queries, "bin*"), "k": (keys, "b*n*")}
    inputs |= {"v": (values, "b*n*"), "words": (words, "bni*")}
    outputs = {"mixed": (queries, "bin*"), "log_sums": (log_sums, "bni")}
    mixed, log_sums = _call(_forward, "attention_forward", inputs, outputs, dropped, interpret)
    return mixed, (projections, score_bias, words, mixed, log_sums)


def _attention_backward(dropped: int, interpret: bool, kept, gradient):  # type: ignore[no-untyped-def]
    (queries, keys, values), score_bias, words, mixed, log_sums = kept
    # The sum over keys of probability times gradient, for each query.
    sums = jnp.einsum("btnk,btnk->bnt", mixed, gradient, preferred_element_type=jnp.float32)
    call = functools.partial(_call, dropped=dropped, interpret=interpret)

    inputs = {"bias": (score_bias, _bias_of_queries(score_bias)), "q": (queries, "bin*")}
    inputs |= {"gradient": (gradient, "bin*"), "log_sums": (log_sums, "bni"), "sums": (sums, "bni")}
    inputs |= {"k": (keys, "b*n*"), "v": (values, "b*n*"), "words": (words, "bni*")}
    (dq,) = call(_backward_queries, "attention_backward_queries", inputs, {"dq": (queries, "bin*")})

    inputs = {"bias": (score_bias, "b*i"), "q": (queries, "b*n*"), "gradient": (gradient, "b*n*")}
    inputs |= {"log_sums": (log_sums, "bn*"), "sums": (sums, "bn*")}
    inputs |= {"k": (keys, "bin*"), "v": (values, "bin*"), "words": (words, "bn**")}
    outputs = {"dk": (keys, "bin*"), "dv": (values, "bin*")}
    dk, dv = call(_backward_keys, "attention_backward_keys", inputs, outputs)
    return (dq, dk, dv), None, None


_attention.defvjp(_attention_forward, _attention_backward)


def _call(kernel, name: str, inputs, outputs, dropped: int, interpret: bool):  # type: ignore[no-untyped-def]
    """Runs a kernel for one row, one head, and one block of positions at a time.

    Args:
      kernel: gets references to parts of the inputs and outputs, by their names.
      name: of the kernel in the compiled program.
      inputs: by name, an array (None: nothing is passed) and its axes: b for rows and n for heads, of which a
        step gets its own; i for positions, of which it gets a block; * for all of an axis.
      outputs: by name, an array or shape like the output, and its axes.
      dropped: as of `fused_attention`.
      interpret: as of `fused_attention`.
    """
    inputs = {key: (array, axes) for key, (array, axes) in inputs.items() if array is not None}
    shapes = [jax.ShapeDtypeStruct(output.shape, output.dtype) for output, _ in outputs.values()]
    batch, length, heads, _ = inputs["q"][0].shape

    def run(*references) -> None:  # type: ignore[no-untyped-def]
        kernel(**dict(zip((*inputs, *outputs), references, strict=True)), dropped=dropped)

    call = pl.pallas_call(
        run,
        grid=(length // _BLOCK, heads, batch),
        in_specs=[_spec(*place) for place in inputs.values()],
        out_specs=[_spec(*place) for place in outputs.values()],
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        name=name,
        interpret=interpret,
    )
    return call(*(array for array, _ in inputs.values()))


def _spec(array: jax.Array | jax.ShapeDtypeStruct, axes: str) -> pl.BlockSpec:
    """Which part of an array a step gets; axes as in `_call`."""
    sizes = {"b": None, "n": None, "i": _BLOCK}
    block = tuple(sizes.get(axis, size) for axis, size in zip(axes, array.shape, strict=True))

    def index(i: jax.Array, n: jax.Array, b: jax.Array) -> tuple[jax.Array | int, ...]:
        return tuple({"b": b, "n": n, "i": i}.get(axis, 0) for axis in axes)

    return pl.BlockSpec(block, index)


def _bias_of_queries(score_bias: jax.Array) -> str:
    return "bi*" if score_bias.shape[1] > 1 else "b**"


def _forward(bias, q, k, v, mixed, log_sums, dropped: int, words=None) -> None:  # type: ignore[no-untyped-def]
    q_QK = q[...]
    words_QT = words[...] if dropped else None

    def add_keys(block, carry):  # type: ignore[no-untyped-def]
        sum_QK, largest_Q, total_Q = carry
        keys = pl.ds(block * _BLOCK, _BLOCK)
        scores_QT = _scores(q_QK, k[keys, :], bias[:, keys])
        largest = jnp.maximum(largest_Q, scores_QT.max(axis=1))
        shrunk_Q = _exp(largest_Q - largest)
        weights_QT = _exp(scores_QT - largest[:, None])
        total_Q = total_Q * shrunk_Q + weights_QT.sum(axis=1)
        if dropped:
            weights_QT = jnp.where(_kept(words_QT, block), weights_QT, 0.0)
        sum_QK = sum_QK * shrunk_Q[:, None] + _product(weights_QT.astype(q_QK.dtype), v[keys, :])
        return sum_QK, largest, total_Q

    zeros = jnp.zeros((_BLOCK,), jnp.float32)
    start = (jnp.zeros(q_QK.shape, jnp.float32), zeros - jnp.inf, zeros)
    sum_QK, largest_Q, total_Q = jax.lax.fori_loop(0, k.shape[0] // _BLOCK, add_keys, start)
    mixed[...] = (sum_QK * (scale_up(dropped) / total_Q)[:, None]).astype(mixed.dtype)
    log_sums[...] = largest_Q + jnp.log(total_Q)


def _backward_queries(  # type: ignore[no-untyped-def]
    bias, q, gradient, log_sums, sums, k, v, dq, dropped: int, words=None
) -> None:
    q_QK, gradient_QK, log_sums_Q, sums_Q = q[...], gradient[...], log_sums[...], sums[...]
    words_QT = words[...] if dropped else None

    def add_keys(block, sum_QK):  # type: ignore[no-untyped-def]
        keys = pl.ds(block * _BLOCK, _BLOCK)
        k_TK = k[keys, :]
        softmax_QT = _exp(_scores(q_QK, k_TK, bias[:, keys]) - log_sums_Q[:, None])
        dsoftmax_QT = _product(gradient_QK, v[keys, :].T)
        if dropped:
            dsoftmax_QT = jnp.where(_kept(words_QT, block), dsoftmax_QT * scale_up(dropped), 0.0)
        dscores_QT = softmax_QT * (dsoftmax_QT - sums_Q[:, None])
        return sum_QK + _product(dscores_QT.astype(q_QK.dtype), k_TK)

    start = jnp.zeros(q_QK.shape, jnp.float32)
    sum_QK = jax.lax.fori_loop(0, k.shape[0] // _BLOCK, add_keys, start)
    dq[...] = (sum_QK * _scale(q_QK)).astype(dq.dtype)


def _backward_keys(  # type: ignore[no-untyped-def]
    bias, q, gradient, log_sums, sums, k, v, dk, dv, dropped: int, words=None
) -> None:
    k_TK, v_TK = k[...], v[...]
    own_block = pl.program_id(0)

    def add_queries(block, carry):  # type: ignore[no-untyped-def]
        dk_TK, dv_TK = carry
        queries = pl.ds(block * _BLOCK, _BLOCK)
        q_QK, gradient_QK = q[queries, :], gradient[queries, :]
        bias_TQ = bias[queries, :].T if bias.shape[0] > 1 else bias[0, :][:, None]
        softmax_TQ = _exp(_scores(k_TK, q_QK, bias_TQ) - log_sums[queries][None])
        probabilities_TQ, dsoftmax_TQ = softmax_TQ, _product(v_TK, gradient_QK.T)
        if dropped:
            kept_TQ = _kept(words[queries, :], own_block).T
            probabilities_TQ = jnp.where(kept_TQ, softmax_TQ, 0.0)
            dsoftmax_TQ = jnp.where(kept_TQ, dsoftmax_TQ * scale_up(dropped), 0.0)
        dscores_TQ = softmax_TQ * (dsoftmax_TQ - sums[queries][None])
        dk_TK += _product(dscores_TQ.astype(q_QK.dtype), q_QK)
        dv_TK += _product(probabilities_TQ.astype(q_QK.dtype), gradient_QK)
        return dk_TK, dv_TK

    zeros = jnp.zeros(k_TK.shape, jnp.float32)
    dk_TK, dv_TK = jax.lax.fori_loop(0, q.shape[0] // _BLOCK, add_queries, (zeros, zeros))
    dk[...] = (dk_TK * _scale(k_TK)).astype(dk.dtype)
    dv[...] = (dv_TK * scale_up(dropped)).astype(dv.dtype)


def _scores(x: jax.Array, y: jax.Array, bias: jax.Array) -> jax.Array:
    return _product(x, y.T) * _scale(x) + bias


def _exp(x: jax.Array) -> jax.Array:
    return jnp.exp2(x * math.log2(math.e))  # the chip has a unit for powers of 2


def _product(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def _scale(x: jax.Array) -> float:
    return x.shape[-1] ** -0.5


def _kept(words: Any, block: jax.Array) -> jax.Array:
    """bool, the bit of a block of keys in each word."""
    return (words.astype(jnp.uint32) >> block.astype(jnp.uint32)) & 1 == 1
