"""How the model knows the order of tokens, for each `ModelConfig.positions`.

A kind of positions adds something to the embeddings (`POSITIONS`), turns queries and keys (`rotate`), or does
both.
"""

from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ModelConfig, Positions
from bert_jax.model.linear import Projection, initializer


class LearntPositions(nn.Module):
    """A learnt vector for each of `max_position_embeddings` positions, added to the embeddings."""

    config: ModelConfig

    def setup(self) -> None:
        self.embedding = self.param(
            "embedding",
            initializer(self.config),
            (self.config.max_position_embeddings, self.config.hidden_size),
        )

    def __call__(self, positions: jax.Array) -> jax.Array:
        """What is added to the embeddings: float32 [..., T, D] for int positions [..., T]."""
        # Padding after the last instance may be further from its start than the table has positions.
        rows = jnp.minimum(positions, self.config.max_position_embeddings - 1)
        return jnp.take(self.embedding, rows, axis=0)


def rotate(config: ModelConfig, projection: Projection, positions: jax.Array) -> Projection:
    """Queries or keys turned by their positions, before scores are computed in either way.

    A kind that turns them returns the turned sum of product and bias, and a bias of zeros.

    Args:
      config: of the encoder.
      projection: product [B, T, N, K] and the bias [N, K] still to be added.
      positions: int [T] or [B, T].
    """
    match config.positions:
        case "learnt":
            return projection


POSITIONS: Mapping[Positions, Callable[[ModelConfig], nn.Module] | None] = {"learnt": LearntPositions}
"""Kind of positions -> the module that gives what is added to the embeddings; None: nothing is added."""


def positions_of(length: int, instances: jax.Array | None) -> jax.Array:
    """int32 [T], or [B, T] in packed rows, where they count from each instance's first token.

    Args:
      length: T.
      instances: from `packed_rows.instances_of`.
    """
    columns = jnp.arange(length)
    return columns if instances is None else columns - instances
