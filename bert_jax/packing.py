"""Rows of several instances, seen from the model's side: which position belongs to which.

A packed batch says where its instances begin, by `instance_starts` int32 [B, K]: the column of each
one's [CLS], ascending, 0 where there is no further one. Without that key a row is one instance.
"""

import jax
import jax.numpy as jnp

from bert_jax.task import Batch


def instance_of_each_position(instance_starts: jax.Array, length: int) -> jax.Array:
    """int32 [B, T]: the column where each position's instance begins, which also tells instances apart."""
    starts_BTK = instance_starts[:, None, :]
    is_behind = starts_BTK <= jnp.arange(length)[:, None]
    return jnp.where(is_behind, starts_BTK, 0).max(axis=-1)


def instance_weights(batch: Batch) -> jax.Array:
    """float32, 1 for each instance and 0 for none, in the shape of `next_sentence_labels`: [B] or [B, K]."""
    real_B = batch["input_mask"][:, 0].astype(jnp.float32)
    if "instance_starts" not in batch:
        return real_B
    starts = batch["instance_starts"]
    return real_B[:, None] * ((starts > 0) | (jnp.arange(starts.shape[1]) == 0))
