"""The masked positions of a batch, on the whole row."""

import jax
import jax.numpy as jnp

from bert_jax.task import Batch


def fill_in(batch: Batch, ids_BP: jax.Array) -> jax.Array:
    """`input_ids` [B, T] with other ids at the masked positions; slots without weight change nothing."""
    return _scatter(batch, jnp.asarray(batch["input_ids"]), ids_BP)


def is_masked(batch: Batch) -> jax.Array:
    """bool [B, T]: which positions are predicted, whatever stands there."""
    nowhere = jnp.zeros(batch["input_ids"].shape, bool)
    return _scatter(batch, nowhere, jnp.ones(batch["masked_lm_positions"].shape, bool))


def _scatter(batch: Batch, rows_BT: jax.Array, values_BP: jax.Array) -> jax.Array:
    beyond = rows_BT.shape[-1]
    columns = jnp.where(batch["masked_lm_weights"] > 0, batch["masked_lm_positions"], beyond)

    def fill_in_row(row: jax.Array, columns: jax.Array, values: jax.Array) -> jax.Array:
        return row.at[columns].set(values.astype(row.dtype), mode="drop")

    return jax.vmap(fill_in_row)(rows_BT, columns, values_BP)
