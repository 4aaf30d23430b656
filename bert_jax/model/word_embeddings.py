"""The table of word embeddings, which a model reads twice: for its tokens, and for the logits of words.

Where devices share a batch, each has a copy of the table that counts as an array of its own. So each adds the
gradients of both uses, and only their sum is exchanged between devices; XLA alone would exchange both.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.mesh import BATCH_AXES, BATCH_SPEC, batch_parts
from bert_jax.model.linear import initializer
from bert_jax.model_config import ModelConfig


class WordEmbeddings(nn.Module):
    """The table, and the embeddings of tokens."""

    config: ModelConfig

    def setup(self) -> None:
        shape = (self.config.vocab_size, self.config.embedding_width)
        embedding_VE = self.param("embedding", initializer(self.config), shape)
        # Both uses must read the same copies; the gradients of others would be exchanged once more.
        self.copies_NVE = _copy_to_devices(embedding_VE)

    def __call__(self, ids_BT: jax.Array) -> jax.Array:
        """float32 [B, T, E]."""
        return _for_each_part(lambda table, ids: jnp.take(table, ids, axis=0), self.copies_NVE, ids_BT)


def multiply_by_words(x_ME: jax.Array, copies_NVE: jax.Array) -> jax.Array:
    """float32 [M, V]: the products of vectors and the embeddings of all words, cast to the vectors' dtype.

    Args:
      x_ME: the vectors.
      copies_NVE: float32, `WordEmbeddings.copies_NVE`.
    """

    def product(table: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.einsum("me,ve->mv", x, table.astype(x.dtype), preferred_element_type=jnp.float32)

    return _for_each_part(product, copies_NVE, x_ME)


def _copy_to_devices(table_VE: jax.Array) -> jax.Array:
    """The table once for each of the N parts of a batch on the mesh, [N, V, E]; N is 1 without a mesh."""
    parts = batch_parts()
    if parts == 1:
        return table_VE[None]
    copies_NVE = jnp.broadcast_to(table_VE, (parts, *table_VE.shape))
    as_it_is = PartitionSpec.UNCONSTRAINED  # the vocabulary may be split over the axis tensor
    return jax.lax.with_sharding_constraint(copies_NVE, PartitionSpec(BATCH_AXES, as_it_is, as_it_is))


def _for_each_part(
    function: Callable[[jax.Array, jax.Array], jax.Array], copies_NVE: jax.Array, rows: jax.Array
) -> jax.Array:
    """`function(table, rows)` for each part of the rows, with its copy of the table."""
    if len(copies_NVE) == 1:
        return function(copies_NVE[0], rows)
    return jax.shard_map(
        lambda copy, rows: function(copy[0], rows),
        in_specs=(BATCH_SPEC, BATCH_SPEC),
        out_specs=BATCH_SPEC,
        axis_names=set(BATCH_AXES),
    )(copies_NVE, rows)
