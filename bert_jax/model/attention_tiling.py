"""How the TPU kernel of attention cuts a batch into steps, and a step into tiles.

A step takes whole heads or, of long sequences, some of their queries. In a window it takes whole heads, and
computes one tile after another: some queries and the keys near them.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

LANES = 128
"""Columns of a register."""
SUBLANES = 8
"""Rows of a register of 32 bits."""
_LONGEST = 2048
# Most scores of one step without tiles: these fit the vector memory beside their exponentials, gradients and
# random bits.
_MOST_SCORES = 1024 * 512
# Most scores of all tiles of a step: the kernel's program has each of them. The forward pass without dropout
# has half as many instructions for a score, and half as many arrays.
_MOST_SCORES_OF_TILES = 6 * 1024 * 256
# Most elements of the keys of a step's heads: its arrays are in the vector memory, with those of the next.
_MOST_OF_KEYS = 6 * 64 * 1024
# In a window, most bytes of these arrays and the bias, by the vector memory that a step may use; the rest
# holds what all tiles compute. v4 has 16 MiB; other chips have at least four times as much, of which the
# compiler grants 16 MiB unless a kernel asks for more.
_MEMORY_OF_V4 = 16 * 2**20
_MOST_BYTES = {_MEMORY_OF_V4: 11 * 2**20, 2 * _MEMORY_OF_V4: 20 * 2**20}


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
    memory: int | None = None
    """Bytes of vector memory that it may use; None: what the compiler grants without being asked."""

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


def step_of(heads: int, width: int, length: int, window: int | None = None, is_light: bool = False) -> Step:
    """The steps for heads of a width and sequences of a length.

    All queries of two heads with 512 positions fit a step, or of more heads with fewer: one short head is too
    little work. There are no tiles if each would have more than half of the keys, or if the vector memory is
    too small for a whole head. This memory is that of the devices of the mesh in use, else of jax's default
    device, else of v4.

    Args:
      heads: N.
      width: K.
      length: T.
      window: how many others to each side a position sees; None: all.
      is_light: whether the step is of the forward pass without dropout.
    """
    of_a_head = width * length
    if window is not None:
        margin = LANES // 2 * -(-2 * window // LANES)
        keys = LANES + 2 * margin
        memory = min(_vector_memory(), 2 * _MEMORY_OF_V4)
        # Of two steps at a time, in bfloat16.
        arrays, bias = 2 * 2 * 8 * of_a_head, 2 * 2 * keys * length
        most = min((_MOST_BYTES[memory] - bias) // arrays, _MOST_SCORES_OF_TILES // (keys * length))
        if 2 * keys <= length and most > 0:
            return Step(largest_divisor(heads, 2 * most if is_light else most), length, keys, margin, memory)
    queries = max(
        count
        for count in range(LANES, length + 1, LANES)
        if length % count == 0 and count * length <= _MOST_SCORES
    )
    most = min(_MOST_SCORES // (queries * length), _MOST_OF_KEYS // of_a_head)
    return Step(largest_divisor(heads, most), queries, length)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`; 1 if `most` is smaller."""
    return max(count for count in range(1, number + 1) if number % count == 0 and count <= max(most, 1))


def _vector_memory() -> int:
    """In bytes."""
    try:
        return pltpu.get_tpu_info().vmem_capacity_bytes
    except ValueError:  # not a TPU
        return _MEMORY_OF_V4
