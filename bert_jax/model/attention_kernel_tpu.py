"""Attention as one TPU kernel, whose scores never leave the chip's vector memory.

Computed operation by operation, attention reads and writes arrays [B, N, T, T] several times, and at BERT's
lengths these transfers, not the matrix products, take most of the time. Here a step (`attention_tiling.py`)
has all keys that its queries may see, so softmax is exact in one pass (no running maximum, unlike kernels for
much longer sequences). The backward pass recomputes scores from queries and keys; the forward pass gives it
the maxima and sums of softmax, and a bit for each score that says whether it is kept.

Shapes: B batch, N heads, H heads of one step, K head width, T length (or keys of one tile), Q queries of one
tile.
Positions are the last axis of queries, keys and values, so that they fill the lanes of the chip's registers.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.model.attention_tiling import LANES, SUBLANES, Step, step_of
from bert_jax.model.dropout import scale_up
from bert_jax.model.linear import add_bias
from bert_jax.model.threefry import keep

QueriesKeysValues: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]
"""Queries, keys and values, [B, N, K, T] each."""

_STATISTICS = 2  # of a query's softmax: the largest score, and the inverse of the sum of exponentials


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6, 7))
def fused_attention(
    projections: QueriesKeysValues,
    biases: jax.Array | None,
    score_bias: jax.Array,
    seed: jax.Array,
    num_heads: int,
    dropped: int,
    window: int | None,
    interpret: bool,
) -> jax.Array:
    """`dropout(softmax(q k / sqrt(K) + score_bias)) v`, softmax in float32.

    Args:
      projections: queries, keys and values before their biases are added.
      biases: float32 [B, N, 3, K], of queries, keys and values, or None. Their gradients are sums over
        positions, which the kernel computes as well; XLA would have to read three arrays again.
      score_bias: float32 [B, T, 1] or, where it depends on the query, [B, T, T], keys first; no gradient
        flows into it. The latter is read as bfloat16, which has the 0 of what is seen.
      seed: uint32 [4]: two words of a key, the first row's index in the whole batch, and the first head's
        in the whole model. With the position they determine an element's random bits.
      num_heads: heads of the whole model, of which N are here.
      dropped: how many of the `RESOLUTION` values of 16 random bits drop an element.
      window: how far to each side a position sees at most, which `score_bias` says as well; None: no limit.
      interpret: compute it with jax operations, on any platform, for tests.

    Returns:
      [B, N, K, T] of the projections' type.
    """
    return _fused_forward(projections, biases, score_bias, seed, num_heads, dropped, window, interpret)[0]


def _fused_forward(projections, biases, score_bias, seed, num_heads, dropped, window, interpret):  # type: ignore[no-untyped-def]
    queries, *keys_and_values = (
        add_bias(x, None if biases is None else biases[:, :, i, :, None]) for i, x in enumerate(projections)
    )
    batch, heads, width, length = queries.shape
    step = step_of(heads, width, length, window, is_light=not dropped)
    if score_bias.shape[2] > 1:
        score_bias = score_bias.astype(jnp.bfloat16)
    if step.margin:
        score_bias = _of_near_keys(score_bias, step)
    output = jax.ShapeDtypeStruct(queries.shape, queries.dtype)
    statistics = jax.ShapeDtypeStruct((batch, heads, _STATISTICS, length), jnp.float32)
    words = jax.ShapeDtypeStruct((batch, heads, step.keys // step.bits_of_word, length), jnp.uint32)
    kernel = functools.partial(_forward, num_heads=num_heads, dropped=dropped)
    call = functools.partial(_call, kernel, step, "attention_forward", seed, score_bias, window, interpret)
    outputs = (output, statistics, words) if dropped else (output, statistics)
    mixed, *softmax = call((queries,), keys_and_values, outputs, ())
    by_query = (queries, *softmax, *([mixed] if step.takes_output else []))
    return mixed, (by_query, keys_and_values, score_bias, seed, biases)


def _of_near_keys(score_bias: jax.Array, step: Step) -> jax.Array:
    """Of a bias [B, T, T], keys first, what each tile adds: [B, keys of a tile, T]."""
    beside = ((0, 0), (step.margin, step.margin), (0, 0))
    padded = jnp.pad(score_bias, beside, constant_values=-jnp.inf)
    return jnp.concatenate([padded[:, keys, queries] for queries, keys in step.tiles], axis=2)


def _fused_backward(num_heads, dropped, window, interpret, kept, gradient):  # type: ignore[no-untyped-def]
    (queries, *softmax_and_mixed), keys_and_values, score_bias, seed, biases = kept
    batch, heads, width, length = gradient.shape
    step = step_of(heads, width, length, window)
    output = jax.ShapeDtypeStruct(gradient.shape, gradient.dtype)
    sums = jax.ShapeDtypeStruct((batch, heads, SUBLANES, width), jnp.float32)
    kernel = functools.partial(_backward, dropped=dropped, has_biases=biases is not None)
    call = functools.partial(_call, kernel, step, "attention_backward", seed, score_bias, window, interpret)
    by_query = (queries, gradient, *softmax_and_mixed)
    outputs_by_head = (output, output) if biases is None else (output, output, sums)
    dq, dk, dv, *summed = call(by_query, keys_and_values, (output,), outputs_by_head)
    return (dq, dk, dv), summed[0][:, :, :3] if summed else None, None, None


fused_attention.defvjp(_fused_forward, _fused_backward)


def _call(  # type: ignore[no-untyped-def]
    kernel: Callable[..., None],
    step: Step,
    name: str,
    seed,
    score_bias,
    window: int | None,
    interpret: bool,
    by_query,
    by_head,
    outputs_by_query,
    outputs_by_head,
):
    """Runs a kernel for one row and one `Step` at a time.

    Args:
      kernel: gets references to the seed, the bias, inputs and outputs in the order of the arguments; where a
        step has not all queries, also to float32 arrays of the shapes of the first two `outputs_by_head`, in
        which it can add up over the steps of a head. Also `step`.
      step: what one step computes.
      name: of the kernel in the compiled program, where the window follows it.
      seed: as of `fused_attention`.
      score_bias: as of `fused_attention`.
      window: as of `fused_attention`.
      interpret: as of `fused_attention`.
      by_query: arrays [B, N, ..., T], of which a step reads its own queries; the first are [B, N, K, T].
      by_head: arrays [B, N, ...], of which a step reads all that belongs to its heads.
      outputs_by_query: shapes of what is written as `by_query` is read.
      outputs_by_head: shapes of what is written as `by_head` is read, by all steps of a head.
    """
    batch, heads, _, length = by_query[0].shape

    def some_queries(array) -> pl.BlockSpec:  # type: ignore[no-untyped-def]
        return pl.BlockSpec((1, step.heads, array.shape[2], step.queries), lambda b, n, i: (b, n, 0, i))

    def whole_heads(array) -> pl.BlockSpec:  # type: ignore[no-untyped-def]
        return pl.BlockSpec((1, step.heads, *array.shape[2:]), lambda b, n, i: (b, n, 0, 0))

    keys, seen = score_bias.shape[1], min(step.queries, score_bias.shape[2])
    parts = outputs_by_head[:2] if step.queries < length else ()
    call = pl.pallas_call(
        functools.partial(kernel, step=step),
        grid=(batch, heads // step.heads, length // step.queries),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((1, keys, seen), lambda b, n, i: (b, 0, i if seen > 1 else 0)),
            *map(some_queries, by_query),
            *map(whole_heads, by_head),
        ],
        out_specs=(*map(some_queries, outputs_by_query), *map(whole_heads, outputs_by_head)),
        out_shape=(*outputs_by_query, *outputs_by_head),
        scratch_shapes=[pltpu.VMEM((step.heads, *part.shape[2:]), jnp.float32) for part in parts],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=step.memory
        ),
        name=name if window is None else f"{name}_window_{window}",
        interpret=interpret,
    )
    return call(seed, score_bias, *by_query, *by_head)


def _forward(  # type: ignore[no-untyped-def]
    seed, score_bias, q, k, v, output, statistics, *words, num_heads: int, dropped: int, step: Step
) -> None:
    k_HTK, v_HKT = _with_margins(k[0].swapaxes(1, 2), 1, step), _with_margins(v[0], 2, step)
    for number, (queries, keys) in enumerate(step.tiles):
        scores_HTQ = _scores(_scaled(q[0, :, :, queries]), k_HTK[:, keys], _of_queries(score_bias, queries))
        largest = scores_HTQ.max(axis=1, keepdims=True)
        exponentials_HTQ = jnp.exp(scores_HTQ - largest)
        inverse_sums = 1 / exponentials_HTQ.sum(axis=1, keepdims=True)
        statistics[0, :, 0:1, queries], statistics[0, :, 1:2, queries] = largest, inverse_sums
        if dropped:
            kept = _kept(seed, num_heads, exponentials_HTQ.shape, dropped, number)
            words[0][0, :, :, queries] = _packed(kept, step.bits_of_word)
            exponentials_HTQ = jnp.where(kept, exponentials_HTQ, 0.0)
        # Far fewer outputs than scores are divided by the sums.
        mixed_HKQ = _product(v_HKT[:, :, keys], exponentials_HTQ.astype(output.dtype), 2, 1)
        output[0, :, :, queries] = (mixed_HKQ * (inverse_sums * scale_up(dropped))).astype(output.dtype)


def _backward(  # type: ignore[no-untyped-def]
    seed, score_bias, q, gradient, *others, dropped: int, has_biases: bool, step: Step
) -> None:
    references = iter(others)
    statistics = next(references)
    words = next(references) if dropped else None
    mixed = next(references) if step.takes_output else None
    k, v, dq, dk, dv = (next(references) for _ in range(5))
    sums = next(references) if has_biases else None
    added = list(references)
    # Scores and the gradients of the probabilities need keys and values transposed, which tiles share.
    k_HTK, v_HTK = (_with_margins(x[0].swapaxes(1, 2), 1, step) for x in (k, v))
    k_HKT = _with_margins(k[0], 2, step)
    # What is kept is scaled up where there are fewer numbers: in the results.
    scale = scale_up(dropped)
    # The compiler overlaps the next products best in one order or the other (`compile` shows it).
    d_is_first = step.margin > 0 or not dropped
    dk_blocks: dict[int, jax.Array] = {}
    dv_blocks: dict[int, jax.Array] = {}
    for number, (queries, keys) in enumerate(step.tiles):
        q_HKQ, gradient_HKQ = _scaled(q[0, :, :, queries]), gradient[0, :, :, queries]
        scores_HTQ = _scores(q_HKQ, k_HTK[:, keys], _of_queries(score_bias, queries))
        largest, inverse_sums = statistics[0, :, 0:1, queries], statistics[0, :, 1:2, queries]
        softmax_HTQ = jnp.exp(scores_HTQ - largest) * inverse_sums
        probabilities_HTQ = softmax_HTQ
        if words is not None:
            kept = _unpacked(words[0, :, :, queries], step.bits_of_word)
            probabilities_HTQ = jnp.where(kept, softmax_HTQ, 0.0)
        # With d the gradient of the probabilities, that of the scores is p d - softmax * sum(p d).
        if d_is_first:
            d_HTQ = _product(v_HTK[:, keys], gradient_HKQ, 2, 1)
        dv_HKT = _product(gradient_HKQ, probabilities_HTQ.astype(dv.dtype), 2, 2) * scale
        _add_blocks(dv_blocks, number, dv_HKT, step)
        if not d_is_first:
            d_HTQ = _product(v_HTK[:, keys], gradient_HKQ, 2, 1)
        if mixed is None:
            sums_H1Q = (probabilities_HTQ * d_HTQ).sum(axis=1, keepdims=True)
        else:
            products = mixed[0, :, :, queries].astype(jnp.float32) * gradient_HKQ.astype(jnp.float32)
            sums_H1Q = products.sum(axis=1, keepdims=True) / scale
        if words is not None:
            dscores_HTQ = probabilities_HTQ * d_HTQ - softmax_HTQ * sums_H1Q
        else:
            dscores_HTQ = softmax_HTQ * (d_HTQ - sums_H1Q)
        dscores_HTQ = dscores_HTQ.astype(dq.dtype)
        dq_HKQ = _product(k_HKT[:, :, keys], dscores_HTQ, 2, 1) * scale
        dq[0, :, :, queries] = _scaled(dq_HKQ).astype(dq.dtype)
        _add_blocks(dk_blocks, number, _product(q_HKQ, dscores_HTQ, 2, 2) * scale, step)
    dk_HKT, dv_HKT = (_without_margins(blocks, step) for blocks in (dk_blocks, dv_blocks))
    if added:
        _add_up((dk_HKT, dv_HKT), added, (dk, dv), sums)
        if sums is not None:
            sums[0] += _sum_in_row(0, dq[0])
    else:
        dk[0], dv[0] = dk_HKT.astype(dk.dtype), dv_HKT.astype(dv.dtype)
        if sums is not None:
            sums[0] = sum(_sum_in_row(i, x[0]) for i, x in enumerate((dq, dk, dv)))


def _of_queries(score_bias, queries: slice) -> jax.Array:  # type: ignore[no-untyped-def]
    """The bias of a tile's queries, [T, Q], or [T, 1] if it is that of all."""
    return score_bias[0, :, queries].astype(jnp.float32) if score_bias.shape[2] > 1 else score_bias[0]


def _with_margins(x: jax.Array, axis: int, step: Step) -> jax.Array:
    """Zeros before and after keys or values, whose positions are an axis, so that those of each tile begin
    where a register does."""
    if not step.margin:
        return x
    beside = jnp.zeros((*x.shape[:axis], step.margin, *x.shape[axis + 1 :]), x.dtype)
    return jnp.concatenate([beside, x, beside], axis=axis)


def _add_blocks(blocks: dict[int, jax.Array], tile: int, x_HKT: jax.Array, step: Step) -> None:
    """Adds what a tile has found of its keys to that of the tiles before it, whose keys it shares."""
    parts = jnp.split(x_HKT, step.keys // LANES, axis=2) if step.margin else [x_HKT]
    for number, part in enumerate(parts, start=tile):
        blocks[number] = blocks[number] + part if number in blocks else part


def _without_margins(blocks: dict[int, jax.Array], step: Step) -> jax.Array:
    """[H, K, T] of all keys of the heads."""
    whole_HKT = jnp.concatenate(list(blocks.values()), axis=2)
    return whole_HKT[:, :, step.margin : whole_HKT.shape[2] - step.margin]


def _add_up(terms, added, outputs, sums) -> None:  # type: ignore[no-untyped-def]
    """Adds to what the steps of a head have found so far, [H, K, T] each; the last step writes the sums, and
    those over positions if `sums` is not None."""

    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        for array in (*added, *([] if sums is None else [sums])):
            array[...] = jnp.zeros(array.shape, array.dtype)

    for array, term in zip(added, terms, strict=True):
        array[...] += term

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        for number, (output, array) in enumerate(zip(outputs, added, strict=True), start=1):
            output[0] = array[...].astype(output.dtype)
            if sums is not None:
                sums[0] += _sum_in_row(number, output[0])


def _sum_in_row(row: int, x_HKT: jax.Array) -> jax.Array:
    """float32 [H, 8, K]: one row is the sum over positions, the others are 0. Done as a matrix product."""
    heads, _, length = x_HKT.shape
    rows = jax.lax.broadcasted_iota(jnp.int32, (heads, SUBLANES, length), 1)
    return _product((rows == row).astype(x_HKT.dtype), x_HKT, 2, 2)


def _scaled(x_HKT: jax.Array) -> jax.Array:
    # The queries (and their gradients) are scaled, as they are fewer than the scores. Exact where K is 64.
    return x_HKT * x_HKT.shape[1] ** -0.5


def _scores(q_HKQ: jax.Array, k_HTK: jax.Array, score_bias: jax.Array) -> jax.Array:
    """float32 [H, T, Q].

    Keys come before queries, so that a sum over keys adds whole registers and stays in its query's lane.
    """
    return _product(k_HTK, q_HKQ, 2, 1) + score_bias


def _product(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
    """float32 matrix product for each head, contracting the given axis of each factor."""
    axes = (((x_axis,), (y_axis,)), ((0,), (0,)))
    return jax.lax.dot_general(x, y, axes, preferred_element_type=jnp.float32)


def _kept(seed, num_heads: int, shape: tuple[int, ...], dropped: int, tile: int) -> jax.Array:  # type: ignore[no-untyped-def]
    """bool [H, T, Q], False where an element is dropped; (key, row, head, position) decides."""
    heads, _, queries = shape
    row = seed[2] + pl.program_id(0).astype(jnp.uint32)
    first_head = row * num_heads + seed[3] + (pl.program_id(1) * heads).astype(jnp.uint32)
    number = pl.program_id(2) + tile
    first_query = (number * queries).astype(jnp.uint32) if pl.num_programs(2) > 1 or tile else None
    return keep(seed[0], seed[1], first_head, shape, dropped, first_query)


def _packed(bits_HTQ: jax.Array, bits: int) -> jax.Array:
    """uint32 [H, T / bits, Q]: bit i of the words is the i-th of so many parts of the keys."""
    words = jnp.zeros((), jnp.uint32)
    for number, part in enumerate(jnp.split(bits_HTQ, bits, axis=1)):
        words = words | jnp.where(part, jnp.uint32(1 << number), jnp.uint32(0))
    return words


def _unpacked(words: jax.Array, bits: int) -> jax.Array:
    """bool [H, T, Q] of the words that `_packed` returned."""
    parts = [(words & jnp.uint32(1 << number)) != 0 for number in range(bits)]
    return jnp.concatenate(parts, axis=1)
