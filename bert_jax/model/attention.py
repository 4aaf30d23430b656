"""Multi-head attention: which positions see each other, and the ways in which it is computed.

Shapes: B batch, T keys (the sequence), Q queries, D hidden, N heads, K head width.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.mesh import BATCH_AXES, head_axes, mesh_in_use
from bert_jax.model import attention_kernel_gpu, attention_kernel_tpu, attention_tiling
from bert_jax.model.dropout import Dropout, dropout, num_dropped
from bert_jax.model.linear import Linear, Projection, add_bias
from bert_jax.model.normalization import of_queries_and_keys
from bert_jax.model.positions import Rotation, rotate
from bert_jax.model_config import ModelConfig

# Added to the score of a position that must not be seen; its probability is then exactly 0.
_MASKED_SCORE = -10000.0

# On CPU without gradients: the most queries to compute at once (the scores of more do not fit the caches),
# the size of the blocks that more queries are cut into, and the most blocks, which limits compile time.
_LONGEST_WHOLE, _BLOCK, _MOST_BLOCKS = 256, 128, 8

Projections: TypeAlias = tuple[Projection, ...]
"""Queries, keys and values."""


class Context(NamedTuple):
    """What attention knows besides the states of the positions."""

    bias: jax.Array
    """float32, added to the scores, from `attention_bias`."""
    queries: jax.Array
    """int [Q] or [B, Q], positions of the queries."""
    keys: jax.Array
    """int [T] or [B, T], positions of the keys."""
    rotation: Rotation | None = None
    """From `rotation_of`."""
    block_bias: jax.Array | None = None
    """float32, what to add to scores that are computed in blocks, from `attention_bias`; None: all scores are
    computed."""

    def at(self, columns: jax.Array) -> "Context":
        """The same for the queries in some columns of the row, int [B, Q]."""
        shape = (columns.shape[0], self.keys.shape[-1])
        queries = jnp.take_along_axis(jnp.broadcast_to(self.keys, shape), columns, axis=1)
        if self.bias.shape[2] == 1:
            return self._replace(queries=queries)
        # Causal, packed or in a window: the bias depends on the query.
        bias = jnp.take_along_axis(self.bias, columns[:, None, :, None], axis=2)
        return self._replace(bias=bias, queries=queries, block_bias=None)


def attention_bias(
    config: ModelConfig,
    input_mask: jax.Array,
    instances: jax.Array | None = None,
    is_causal: jax.Array | None = None,
    block: int | None = None,
) -> jax.Array:
    """What to add to attention scores: 0 where a position may be seen, -10000 where not.

    Args:
      config: of the layer; decides between bidirectional, causal and anticausal attention, and on a window.
      input_mask: [B, T], 1 for real tokens and 0 for padding.
      instances: [B, T], which instance of a packed row each position belongs to; others are not seen.
      is_causal: bool [B, T], positions that see only themselves and those to their left, whatever the config.
      block: for the scores of `attend_in_window`, those of each block of so many queries with the keys of its
        own block and the two beside it; None: for all scores.

    Returns:
      float32 [B, 1, 1, T], or [B, 1, T, T] when causal, anticausal, packed or in a window (query position
      before key position); with `block` [B * blocks, 1, block, 3 * block].
    """
    columns = jnp.arange(input_mask.shape[-1])
    columns = columns[None] if block is None else jnp.broadcast_to(columns, input_mask.shape)

    # Both take values of positions, [B, T].
    def of_queries(x: jax.Array) -> jax.Array:
        own = x if block is None else _blocks(x, block)
        return own[:, None, :, None]

    def of_keys(x: jax.Array) -> jax.Array:
        near = x if block is None else _with_neighbours(_blocks(x, block), len(x))
        return near[:, None, None, :]

    visible = of_keys(input_mask) > 0
    if instances is not None:
        visible &= of_queries(instances) == of_keys(instances)
    distance = of_queries(columns) - of_keys(columns)
    if config.attention == "causal":
        visible &= distance >= 0
    if config.attention == "anticausal":
        visible &= distance <= 0
    if is_causal is not None:
        visible &= (distance >= 0) | ~of_queries(is_causal)
    if config.attention_window is not None:
        visible &= jnp.abs(distance) <= config.attention_window
    return jnp.where(visible, 0.0, _MASKED_SCORE)


class Attention(nn.Module):
    """Multi-head attention with dropout on the probabilities; no residual, and no normalization of its input.

    Args:
      queries_BQD: [B, Q, D] in `config.dtype`, the states that queries are computed from.
      x_BTD: [B, T, D], the states that keys and values are computed from.
      context: of these positions.

    Returns:
      [B, Q, D] in `config.dtype`.

    The collection "intermediates" receives the probabilities before dropout, [B, N, Q, T].
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, queries_BQD: jax.Array, x_BTD: jax.Array, context: Context, deterministic: bool
    ) -> jax.Array:
        config, bias = self.config, context.bias
        heads = (config.num_heads, config.head_width)

        def project(name: str, x: jax.Array, positions: jax.Array) -> Projection:
            projection = Linear(config, heads, name=name).parts(x)
            if norm := of_queries_and_keys(config, f"{name}_layer_norm"):
                projection = norm(add_bias(*projection)), None
            return rotate(projection, positions, context.rotation, config.attention_kernel == "auto")

        projections = (
            project("query", queries_BQD, context.queries),
            project("key", x_BTD, context.keys),
            Linear(config, heads, name="value").parts(x_BTD),
        )
        if self.is_mutable_collection("intermediates"):
            queries, keys, _ = projections
            scores = attention_scores(_heads_first(*queries), _heads_first(*keys), bias)
            self.sow("intermediates", "attention_probabilities", nn.softmax(scores).astype(queries[0].dtype))
        key = Dropout(config.attention_dropout_rate).key(deterministic)
        rate = config.attention_dropout_rate
        if config.attention_kernel == "auto":
            # In a window the kernel takes column i to be position i, which chosen columns are not.
            window = config.attention_window if queries_BQD is x_BTD else None
            mixed_BQNK = attend(projections, bias, key, rate, deterministic, context.block_bias, window)
        else:
            mixed_BQNK = _attend_by_xla(projections, bias, key, rate, context.block_bias)
        return Linear(config, (config.hidden_size,), num_inputs=2, name="output")(mixed_BQNK)


def attention_scores(q_BNQK: jax.Array, k_BNTK: jax.Array, bias: jax.Array) -> jax.Array:
    """Scaled scores plus bias, float32 [B, N, Q, T]; their softmax over T is the attention probabilities."""
    scores_BNQT = jnp.einsum("bnqk,bntk->bnqt", q_BNQK, k_BNTK, preferred_element_type=jnp.float32)
    return scores_BNQT / math.sqrt(q_BNQK.shape[-1]) + bias


def attend(
    projections: Projections,
    bias: jax.Array,
    key: jax.Array | None,
    rate: float,
    deterministic: bool,
    block_bias: jax.Array | None = None,
    window: int | None = None,
) -> jax.Array:
    """Values mixed by the probabilities, [B, Q, N, K].

    On TPU and GPU a kernel computes them where it `fits`, otherwise XLA does; all draw different dropout. On
    CPU, without gradients, long queries are computed in blocks; with gradients that is slower.

    Args:
      projections: queries [B, Q, N, K], keys and values [B, T, N, K], each with the bias still to be added,
        float32 [N, K] or None.
      bias: added to the scores, from `attention_bias`.
      key: for dropout on the probabilities; None for no dropout.
      rate: probability of dropping an attention probability.
      deterministic: True outside of training.
      block_bias: where XLA need not compute all scores, from `attention_bias` with `block`.
      window: of the layer, if the queries are all positions in order; for the kernel of TPUs.
    """
    plain = functools.partial(_attend_by_xla, rate=rate, block_bias=block_bias)
    (queries, _), (keys, _), _ = projections
    _, length, _, width = keys.shape
    one_for_all_heads = bias.shape[1] == 1  # the kernels support nothing else
    sizes = (queries.shape[1], length, width, queries.dtype)
    on_tpu: Callable[..., jax.Array] = plain
    on_gpu: Callable[..., jax.Array] = plain
    on_cpu: Callable[..., jax.Array] = plain
    if one_for_all_heads and attention_tiling.fits(*sizes):
        on_tpu = functools.partial(attend_fused, rate=rate, window=window)
    # In blocks XLA computes only the scores that a window lets be seen, and the kernel all of them.
    if one_for_all_heads and block_bias is None and attention_kernel_gpu.fits(*sizes):
        on_gpu = functools.partial(attend_fused_on_gpu, rate=rate)
    if deterministic and queries.shape[1] > _LONGEST_WHOLE and block_bias is None:
        on_cpu = _attend_in_blocks
    if on_tpu is plain and on_gpu is plain and on_cpu is plain:
        return plain(projections, bias, key)
    return jax.lax.platform_dependent(
        projections, bias, key, tpu=on_tpu, cuda=on_gpu, cpu=on_cpu, default=plain
    )


def _attend_by_xla(
    projections: Projections,
    bias: jax.Array,
    key: jax.Array | None,
    rate: float,
    block_bias: jax.Array | None,
) -> jax.Array:
    if block_bias is not None:
        return attend_in_window(projections, block_bias, key, rate)
    return attend_plainly(projections, bias, key, rate)


def attend_plainly(
    projections: Projections, bias: jax.Array, key: jax.Array | None, rate: float
) -> jax.Array:
    """As `attend`, by plain jax operations."""
    q_BNQK, k_BNTK, v_BNTK = (_heads_first(*projection) for projection in projections)
    scores_BNQT = attention_scores(q_BNQK, k_BNTK, bias)
    # The softmax's division comes last, on the mixed values, which are fewer than the scores.
    highest = jax.lax.stop_gradient(scores_BNQT.max(axis=-1, keepdims=True))
    weights_BNQT = jnp.exp(scores_BNQT - highest)
    kept_BNQT = dropout(weights_BNQT.astype(q_BNQK.dtype), rate, key)
    mixed_BNQK = jnp.einsum("bnqt,bntk->bnqk", kept_BNQT, v_BNTK)
    mixed_BNQK = mixed_BNQK / weights_BNQT.sum(axis=-1, keepdims=True)
    return mixed_BNQK.astype(q_BNQK.dtype).swapaxes(1, 2)


def attend_in_window(
    projections: Projections, block_bias: jax.Array, key: jax.Array | None, rate: float
) -> jax.Array:
    """As `attend_plainly`, for positions that see a window: each block of queries meets only the keys of its
    own block and of the two beside it. Blocks are computed as if they were rows."""
    (queries, query_bias), (keys, key_bias), (values, value_bias) = projections
    rows, length, heads, width = queries.shape
    size = block_bias.shape[2]
    seen = (
        (_blocks(queries, size), query_bias),
        (_with_neighbours(_blocks(keys, size), rows), key_bias),
        (_with_neighbours(_blocks(values, size), rows), value_bias),
    )
    mixed = attend_plainly(seen, block_bias, key, rate)
    return mixed.reshape(rows, -1, heads, width)[:, :length]


def _blocks(x_BT: jax.Array, size: int) -> jax.Array:
    """[B, T, ...] cut along T: [B * blocks, size, ...]; zeros fill the last block."""
    padding = -x_BT.shape[1] % size
    padded = jnp.pad(x_BT, ((0, 0), (0, padding), *((0, 0) for _ in x_BT.shape[2:])))
    return padded.reshape(-1, size, *x_BT.shape[2:])


def _with_neighbours(blocks: jax.Array, rows: int) -> jax.Array:
    """Each block of some rows, [rows * blocks, size, ...], between the two beside it:
    [rows * blocks, 3 * size, ...]; zeros stand beside the first and the last of a row."""
    by_row = blocks.reshape(rows, -1, *blocks.shape[1:])
    count = by_row.shape[1]
    beyond = jnp.pad(by_row, ((0, 0), (1, 1), *((0, 0) for _ in blocks.shape[1:])))
    three = jnp.concatenate([beyond[:, i : i + count] for i in range(3)], axis=2)
    return three.reshape(-1, *three.shape[2:])


def _attend_in_blocks(projections: Projections, bias: jax.Array, key: None) -> jax.Array:
    """As `attend_plainly` without dropout, one block of queries after another."""
    (queries, query_bias), *others = projections
    count = queries.shape[1]
    size = max(_BLOCK, math.ceil(count / _MOST_BLOCKS))

    def attend_block(block: slice) -> jax.Array:
        seen = bias if bias.shape[2] == 1 else bias[:, :, block]
        return attend_plainly(((queries[:, block], query_bias), *others), seen, key, rate=0.0)

    return jnp.concatenate([attend_block(slice(i, i + size)) for i in range(0, count, size)], axis=1)


def _heads_first(product_BTNK: jax.Array, bias_NK: jax.Array | None) -> jax.Array:
    """Product plus bias, [B, N, T, K]. With each head's matrix contiguous, XLA on CPU multiplies two to three
    times as fast."""
    return add_bias(product_BTNK, bias_NK).swapaxes(1, 2)


def attend_fused(
    projections: Projections,
    bias: jax.Array,
    key: jax.Array | None,
    rate: float,
    window: int | None = None,
    interpret: bool = False,
) -> jax.Array:
    """As `attend`, by the TPU kernel."""

    def fused(arrays, score_bias, seed, num_heads, dropped):  # type: ignore[no-untyped-def]
        *products, biases = arrays
        attention = attention_kernel_tpu.fused_attention
        return attention(tuple(products), biases, score_bias, seed, num_heads, dropped, window, interpret)

    products = [product.transpose(0, 2, 3, 1) for product, _ in projections]
    score_bias = bias.squeeze(1).swapaxes(1, 2)
    arrays = (*products, _biases_of_rows(projections))
    return _on_each_device(fused, arrays, 1, score_bias, key, rate).transpose(0, 3, 1, 2)


def _biases_of_rows(projections: Projections) -> jax.Array | None:
    """float32 [B, N, 3, K], the biases of queries, keys and values in each row; None if there are none."""
    biases = [bias for _, bias in projections]
    if all(bias is None for bias in biases):
        return None
    rows, _, heads, width = projections[0][0].shape
    stacked = jnp.stack([jnp.zeros((heads, width)) if bias is None else bias for bias in biases], axis=1)
    return jnp.broadcast_to(stacked, (rows, *stacked.shape))


def attend_fused_on_gpu(
    projections: Projections, bias: jax.Array, key: jax.Array | None, rate: float, interpret: bool = False
) -> jax.Array:
    """As `attend`, by the GPU kernel."""

    def fused(arrays, score_bias, seed, num_heads, dropped):  # type: ignore[no-untyped-def]
        attention = attention_kernel_gpu.fused_attention
        return attention(arrays, score_bias, seed, num_heads, dropped, interpret)

    arrays = tuple(add_bias(*projection) for projection in projections)
    return _on_each_device(fused, arrays, 2, bias.squeeze(1), key, rate)


def _on_each_device(
    fused: Callable[..., jax.Array],
    arrays: tuple[Any, ...],
    head_axis: int,
    score_bias: jax.Array,
    key: jax.Array | None,
    rate: float,
) -> jax.Array:
    """What a kernel computes. On a mesh each device computes the rows and heads that it holds; their dropout
    does not depend on the mesh.

    Args:
      fused: the kernel, of (arrays, score bias, seed, heads of the whole model, draws that drop).
      arrays: [B, ...], N heads along `head_axis`; so is the result. Others than the first may be None.
      head_axis: 1 or above.
      score_bias: [B, ...].
      key: for dropout; None for no dropout.
      rate: of dropout.
    """
    num_heads = arrays[0].shape[head_axis]
    dropped = 0 if key is None else num_dropped(rate)
    words = jnp.zeros(2, jnp.uint32) if key is None else jax.random.bits(key, (2,), jnp.uint32)
    mesh = mesh_in_use()
    by_heads = head_axes(mesh, num_heads) if mesh else ()

    def first(axes: tuple[str, ...], count: int) -> jax.Array:
        """Index of a device's first row or head among all, given how many (`count`) each device holds."""
        return jnp.uint32(jax.lax.axis_index(axes) * count if mesh and axes else 0)

    def compute(arrays, score_bias, words):  # type: ignore[no-untyped-def]
        rows, heads = arrays[0].shape[0], arrays[0].shape[head_axis]
        seed = jnp.stack([*words, first(BATCH_AXES, rows), first(by_heads, heads)])
        return fused(arrays, score_bias, seed, num_heads, dropped)

    if mesh:
        by_head = PartitionSpec(BATCH_AXES, *(None,) * (head_axis - 1), by_heads)
        specs = (by_head, PartitionSpec(BATCH_AXES), PartitionSpec())
        compute = jax.shard_map(compute, in_specs=specs, out_specs=by_head, check_vma=False)
    return compute(arrays, score_bias, words)
