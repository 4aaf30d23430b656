"""Rows of several instances, seen from the model's side: which position belongs to which.

A packed batch says where its instances begin, by `instance_starts` int32 [B, K]: the column of each
one's [CLS], 0 where there is no further one. Without that key a row is one instance. Rows of a batch are
here what fine-tuning calls lines; the instances in them are what it calls rows, or sequences of a row.
"""

import jax
import jax.numpy as jnp

from bert_jax.task import Batch


def instance_of_each_position(instance_starts: jax.Array, length: int) -> jax.Array:
    """int32 [B, T]: the column where each position's instance begins, which also tells instances apart."""
    starts_BTK = instance_starts[:, None, :]
    is_behind = starts_BTK <= jnp.arange(length)[:, None]
    return jnp.where(is_behind, starts_BTK, 0).max(axis=-1)


def instances_of(batch: Batch) -> jax.Array | None:
    """`instance_of_each_position` of a packed batch; None of another one."""
    if "instance_starts" not in batch:
        return None
    return instance_of_each_position(batch["instance_starts"], batch["input_ids"].shape[-1])


def instance_starts(batch: Batch) -> jax.Array:
    """int32 [B, K]: the column of each instance's [CLS]; K is 1 of a batch that is not packed."""
    return batch.get("instance_starts", jnp.zeros_like(batch["input_mask"][:, :1]))


def instance_masks(batch: Batch) -> jax.Array:
    """bool [B, K, T]: the real tokens of each instance, none where there is no such one."""
    real = batch["input_mask"][:, None, :] > 0
    instances = instances_of(batch)
    if instances is None:
        return real
    return real & is_instance(batch)[..., None] & (instances[:, None, :] == instance_starts(batch)[..., None])


def is_instance(batch: Batch) -> jax.Array:
    """bool [B, K]: whether there is an instance at all."""
    starts = instance_starts(batch)
    return (batch["input_mask"][:, :1] > 0) & ((starts > 0) | (jnp.arange(starts.shape[1]) == 0))


def instance_weights(batch: Batch) -> jax.Array:
    """float32, 1 for each instance and 0 for none, in the shape of `next_sentence_labels`: [B] or [B, K]."""
    weights = is_instance(batch).astype(jnp.float32)
    return weights if "instance_starts" in batch else weights[:, 0]
