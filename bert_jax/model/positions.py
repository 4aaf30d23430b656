"""How the model knows the order of tokens, for each `ModelConfig.positions`.

A kind of positions adds something to the embeddings (`POSITIONS`), rotates queries and keys (`rotate`), does
both, or neither.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax.mesh import BATCH_AXES, head_axes, mesh_in_use
from bert_jax.model import rotation_kernel_tpu
from bert_jax.model.linear import Projection, add_bias, initializer
from bert_jax.model_config import ModelConfig, Positions


class LearntPositions(nn.Module):
    """A learned vector for each of `max_position_embeddings` positions, added to the embeddings."""

    config: ModelConfig

    def setup(self) -> None:
        self.embedding = self.param(
            "embedding",
            initializer(self.config),
            (self.config.max_position_embeddings, self.config.embedding_width),
        )

    def __call__(self, positions: jax.Array) -> jax.Array:
        """What is added to the embeddings: float32 [..., T, E] for int positions [..., T]."""
        # Padding after the last instance may be further from its start than the table has positions.
        rows = jnp.minimum(positions, self.config.max_position_embeddings - 1)
        return jnp.take(self.embedding, rows, axis=0)


class SinusoidalPositions(nn.Module):
    """Sines and cosines of the positions, added to the embeddings (Vaswani et al. 2017, section 3.5).

    Their amplitude is `initializer_range`: to the initial word embeddings they are then in the same
    proportion as there, where the word embeddings are multiplied by sqrt(D).
    """

    config: ModelConfig

    def __call__(self, positions: jax.Array) -> jax.Array:
        """What is added to the embeddings: float32 [..., T, E] for int positions [..., T]; at even places of
        E sines, at odd ones cosines."""
        angles = _angles(positions, self.config.embedding_width, 10_000.0)
        waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return self.config.initializer_range * waves.reshape(*angles.shape[:-1], -1)


class Rotation(NamedTuple):
    """Cosines and sines of the angles of `rotate`: float32 [T, K / 2] each, for positions 0 to T - 1.

    Constants of the compiled program. If it computed them, XLA would do so again for every element.
    """

    cos: np.ndarray
    sin: np.ndarray


def rotation_of(config: ModelConfig, length: int) -> Rotation | None:
    """The rotation of queries and keys in a layer; None if they are not rotated.

    Args:
      config: of the layer.
      length: T.
    """
    match config.positions:
        case "rotary":
            angles = _angles(np.arange(length), config.head_width, config.rotary_base)
            return Rotation(np.cos(angles), np.sin(angles))
        case _:
            return None


def rotate(
    projection: Projection, positions: jax.Array, rotation: Rotation | None, use_kernel: bool = False
) -> Projection:
    """Queries or keys rotated by their positions, before scores are computed, in whatever way.

    If they are rotated, the result is the rotated sum of product and bias, and no bias.

    rotary (Su et al. 2021, "RoFormer", arXiv 2104.09864): places i and i + K/2 of a head are a pair, rotated
    in the plane by position * base^(-2i/K). Which places are pairs is a matter of the order of a kernel's
    columns; these are those of GPT-NeoX, ModernBERT and most others, while RoFormer's own are neighbours.

    Args:
      projection: product [B, T, N, K] and the bias still to be added, float32 [N, K] or None.
      positions: int [T] or [B, T].
      rotation: from `rotation_of`.
      use_kernel: on TPU, where the kernel takes arrays of these sizes.
    """
    if rotation is None:
        return projection
    x_BTNK = add_bias(*projection)
    _, length, _, width = x_BTNK.shape
    cos, sin = (jnp.take(table, positions, axis=0) for table in rotation)
    if use_kernel and rotation_kernel_tpu.fits(length, width, x_BTNK.dtype):
        rotated = jax.lax.platform_dependent(x_BTNK, cos, sin, tpu=rotate_by_kernel, default=rotate_plainly)
    else:
        rotated = rotate_plainly(x_BTNK, cos, sin)
    return rotated, None


def rotate_plainly(x_BTNK: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Each pair of places rotated by its angle, in float32, and then in the dtype of `x_BTNK`.

    Args:
      x_BTNK: queries or keys.
      cos: float32 [T, K / 2] or [B, T, K / 2].
      sin: the same.
    """
    cos, sin = cos[..., None, :], sin[..., None, :]
    x, y = jnp.split(x_BTNK.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([x * cos - y * sin, y * cos + x * sin], axis=-1).astype(x_BTNK.dtype)


def rotate_by_kernel(x_BTNK: jax.Array, cos: jax.Array, sin: jax.Array, interpret: bool = False) -> jax.Array:
    """As `rotate_plainly`, by the TPU kernel. On a mesh, each device rotates its own rows and heads."""

    def on_device(x: jax.Array, *tables: jax.Array) -> jax.Array:
        rotated = rotation_kernel_tpu.rotate(x.transpose(0, 2, 3, 1), *tables, interpret)
        return rotated.transpose(0, 3, 1, 2)

    tables = [table.reshape(-1, *table.shape[-2:]).swapaxes(1, 2) for table in (cos, sin)]
    if mesh := mesh_in_use():
        rows_and_heads = PartitionSpec(BATCH_AXES, None, head_axes(mesh, x_BTNK.shape[2]))
        rows = PartitionSpec(BATCH_AXES) if cos.ndim == 3 else PartitionSpec()
        specs = (rows_and_heads, rows, rows)
        on_device = jax.shard_map(on_device, in_specs=specs, out_specs=rows_and_heads, check_vma=False)
    return on_device(x_BTNK, *tables)


_Positions = TypeVar("_Positions", np.ndarray, jax.Array)


def _angles(positions: _Positions, width: int, base: float) -> _Positions:
    """float32 [..., T, width / 2]: position * base^(-2i / width)."""
    frequencies = np.float32(base) ** (-np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    return positions[..., None].astype(np.float32) * frequencies


POSITIONS: Mapping[Positions, Callable[[ModelConfig], nn.Module] | None] = {
    "learnt": LearntPositions,
    "rotary": None,
    "sinusoidal": SinusoidalPositions,
    "none": None,
}
"""Kind of positions -> the module that gives what is added to the embeddings; None: nothing is added."""


def positions_of(length: int, instances: jax.Array | None) -> jax.Array:
    """int32 [T], or [B, T] in packed rows, where they count from each instance's first token.

    Args:
      length: T.
      instances: from `packed_rows.instances_of`.
    """
    columns = jnp.arange(length)
    return columns if instances is None else columns - instances
