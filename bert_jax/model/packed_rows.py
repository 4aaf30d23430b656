"""Rows of several instances, as the model sees them: which position belongs to which instance.

A packed batch has the key `instance_starts`, int32 [B, K]: the column of each instance's [CLS], or 0 for
entries after a row's last instance. Without that key a row is one instance. What is called a row here,
fine-tuning calls a line; what is called an instance, it calls a row, or a sequence of a row.
"""

import jax
import jax.numpy as jnp

from bert_jax.task import Batch


def instances_of(batch: Batch) -> jax.Array | None:
    """int32 [B, T]: the column where each position's instance begins, which also identifies the instance;
    None for a batch that is not packed."""
    if "instance_starts" not in batch:
        return None
    starts_BTK = batch["instance_starts"][:, None, :]
    is_behind = starts_BTK <= jnp.arange(batch["input_ids"].shape[-1])[:, None]
    return jnp.where(is_behind, starts_BTK, 0).max(axis=-1)


def instance_starts(batch: Batch) -> jax.Array:
    """int32 [B, K]: the column of each instance's [CLS]; K is 1 for a batch that is not packed."""
    return batch.get("instance_starts", jnp.zeros_like(batch["input_mask"][:, :1]))


def instance_masks(batch: Batch) -> jax.Array:
    """bool [B, K, T]: the real tokens of each instance; all False for an entry that is no instance."""
    real = batch["input_mask"][:, None, :] > 0
    instances = instances_of(batch)
    if instances is None:
        return real
    return real & is_instance(batch)[..., None] & (instances[:, None, :] == instance_starts(batch)[..., None])


def is_instance(batch: Batch) -> jax.Array:
    """bool [B, K]: whether each entry of `instance_starts` is an instance; False in padding rows."""
    starts = instance_starts(batch)
    return (batch["input_mask"][:, :1] > 0) & ((starts > 0) | (jnp.arange(starts.shape[1]) == 0))


def instance_weights(batch: Batch) -> jax.Array:
    """`is_instance` as float32 weights, 1 or 0, in the shape of `next_sentence_labels`: [B] or [B, K]."""
    weights = is_instance(batch).astype(jnp.float32)
    return weights if "instance_starts" in batch else weights[:, 0]
