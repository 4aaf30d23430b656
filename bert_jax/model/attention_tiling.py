"""How the TPU kernel of attention cuts a batch into steps, and a step into tiles.

A step takes whole heads or, beyond 640 positions, some queries of one head. In a window it takes whole heads,
and computes one tile after another: some queries and the keys near them.
"""

import dataclasses

import jax
import jax.numpy as jnp

LANES = 128
"""Columns of a register."""
SUBLANES = 8
"""Rows of a register of 32 bits."""
_LONGEST = 2048
# Most scores in one step: these fit the vector memory beside their exponentials, gradients and random bits.
_MOST_SCORES = 1024 * 512
# In a window, most scores of all tiles of a step, as each tile is a part of the kernel's program; and most
# bytes of its arrays and those of the next step, which are fetched meanwhile: v4 has 16 MiB.
_MOST_SCORES_OF_TILES = 6 * 1024 * 256
_MOST_BYTES = 15 * 2**20
_ARRAYS = 8  # [B, N, K, T], of the backward pass


def fits(num_queries: int, length: int, head_width: int, dtype: jax.typing.DTypeLike) -> bool:
    """Whether the kernel takes queries [B, N, K, Q] and keys [B, N, K, T] of these sizes."""
    return (
        num_queries == length
        and length % LANES == 0
        and length <= _LONGEST
        and head_width % (2 * SUBLANES) == 0
        and dtype == jnp.bfloat16
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """What one step of the kernel computes."""

    heads: int
    queries: int
    keys: int
    """Those that the queries of a tile may see, and others beside them."""
    margin: int = 0
    """In a window, how many of the keys are on each side of the queries; beyond the ends of a sequence these
    are zeros."""

    @property
    def tiles(self) -> list[tuple[slice, slice]]:
        """Queries that are computed at once, and where their keys are among those of their heads, margins
        included."""
        if not self.margin:
            return [(slice(None), slice(None))]
        starts = range(0, self.queries, LANES)
        return [(slice(start, start + LANES), slice(start, start + self.keys)) for start in starts]

    @property
    def takes_output(self) -> bool:
        """Whether the backward pass reads attention's output. With it, sums over the keys are sums over the
        head's width; with few keys, reading it takes longer than it saves."""
        return self.keys > LANES

    @property
    def bits_of_word(self) -> int:
        """How many keys' bits one word holds, such that the words of all keys fill whole registers."""
        return 32 if self.keys % (32 * SUBLANES) == 0 else 16


def step_of(heads: int, width: int, length: int, window: int | None = None) -> Step:
    """The steps for heads of a width and sequences of a length.

    All queries of two heads with 512 positions fit a step, or of more heads with fewer: one short head is too
    little work. A position sees `window` others to each side, or all.
    """

    def divisor(most: int) -> int:
        return max(count for count in range(1, heads + 1) if heads % count == 0 and count <= most)

    if window is not None:
        margin = LANES // 2 * -(-2 * window // LANES)
        keys = LANES + 2 * margin
        bias, of_a_head = 2 * 4 * keys * length, 2 * 2 * _ARRAYS * width * length
        if 2 * keys <= length and bias + of_a_head <= _MOST_BYTES:
            most = min((_MOST_BYTES - bias) // of_a_head, _MOST_SCORES_OF_TILES // (length * keys))
            return Step(divisor(most), length, keys, margin)
    queries = max(
        count
        for count in range(LANES, length + 1, LANES)
        if length % count == 0 and count * length <= _MOST_SCORES
    )
    return Step(divisor(_MOST_SCORES // (queries * length)), queries, length)
