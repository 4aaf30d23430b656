"""Random choices of the model, as functions of key and sequence alone.

They come from a hash of a sequence's tokens, not from its place in the batch. So they are the same however
rows are spread over devices and micro-batches, and in packed rows.
Shapes: B batch, T length, P predictions, V vocabulary.
"""

import jax
import jax.numpy as jnp

from bert_jax.model.packed_rows import instances_of
from bert_jax.model.positions import positions_of
from bert_jax.model.threefry import threefry2x32
from bert_jax.task import Batch

# 2^32 divided by the golden ratio: its multiples lie far from each other.
_STRIDE = 0x9E3779B9


def sample(logits_BPV: jax.Array, batch: Batch, key: jax.Array) -> jax.Array:
    """An id for each prediction from the distribution of its logits, int32 [B, P].

    The id whose logit plus Gumbel noise is largest; no gradient flows through it.

    Args:
      logits_BPV: float32 [B, P, V].
      batch: `input_ids`, `input_mask` [B, T] and `masked_lm_positions` [B, P]; in packed rows also
        `instance_starts`.
      key: the same for all rows.
    """
    key0, key1 = jax.random.bits(key, (2,), jnp.uint32)
    slots_BP1 = _hash_slots(batch)[..., None]
    tokens_V = jax.lax.iota(jnp.uint32, logits_BPV.shape[-1])
    slots_BPV, tokens_BPV = jnp.broadcast_arrays(slots_BP1, tokens_V)
    bits, _ = threefry2x32((key0, key1), (slots_BPV, tokens_BPV))
    # 23 bits and a half: never 0 or 1, of which the logarithms below are infinite.
    uniform = ((bits >> 9).astype(jnp.float32) + 0.5) * 2.0**-23
    return jnp.argmax(logits_BPV - jnp.log(-jnp.log(uniform)), axis=-1).astype(jnp.int32)


def choose_sequences(batch: Batch, fraction: float) -> jax.Array:
    """bool [B, T]: whether a position's sequence is among a fraction that its tokens choose.

    Masks are drawn anew at each visit of a text, and so is the choice.
    """
    ids = batch["input_ids"]
    columns = jnp.broadcast_to(jnp.arange(ids.shape[-1]), ids.shape)
    return (_hash_sequences(batch, columns) >> 8) < round(fraction * 2**24)


def _hash_slots(batch: Batch) -> jax.Array:
    """uint32 [B, P] of each prediction: of its sequence, and of its position there."""
    positions, columns = _positions(batch), batch["masked_lm_positions"]
    places = jnp.take_along_axis(positions, columns, axis=1).astype(jnp.uint32)
    return _hash_sequences(batch, columns) + (places + 1) * jnp.uint32(_STRIDE)


def _hash_sequences(batch: Batch, columns: jax.Array) -> jax.Array:
    """uint32 [B, Q] of the tokens, in their order, of the sequences to which the columns [B, Q] belong."""
    ids, positions = batch["input_ids"], _positions(batch)
    zero = jnp.uint32(0)
    tokens, _ = threefry2x32((zero, zero), (ids.astype(jnp.uint32), positions.astype(jnp.uint32)))
    counts_BQT = jnp.broadcast_to(batch["input_mask"][:, None, :] > 0, (*columns.shape, ids.shape[-1]))
    instances = instances_of(batch)
    if instances is not None:
        own = jnp.take_along_axis(instances, columns, axis=1)
        counts_BQT &= own[..., None] == instances[:, None, :]
    return jnp.where(counts_BQT, tokens[:, None, :], zero).sum(-1, dtype=jnp.uint32)


def _positions(batch: Batch) -> jax.Array:
    """int [B, T], from the start of each sequence."""
    ids = jnp.asarray(batch["input_ids"])
    return jnp.broadcast_to(positions_of(ids.shape[-1], instances_of(batch)), ids.shape)
