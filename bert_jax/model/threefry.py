"""Random bits for dropout as a pure function of a key and an element's place.

jax.random does not run inside a kernel, and a TPU's own generator depends on how work is cut into steps.
On CPU, XLA vectorises these rounds, but not jax.random's generators.
Shapes: H heads, T keys, Q queries.
"""

import math

import jax
import jax.numpy as jnp

# The fewest rounds without a known statistical flaw, according to the authors (Random123, threefry.h).
# Their default, and jax's, is 20; that safety margin would cost attention a fifth more cycles.
_ROUNDS = 13
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 random bits of `shape`; its first axis and the product of the others are below 2**32."""
    key0, key1 = jax.random.bits(key, (2,), jnp.uint32)
    row = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
    column = jnp.zeros(shape, jnp.uint32)
    for axis in range(1, len(shape)):
        place = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        column = column + place * jnp.uint32(math.prod(shape[axis + 1 :]))
    # The second word of a block is not used: computing it is cheaper than moving it to other elements.
    return threefry2x32((key0, key1), (row, column))[0]


def keep(
    key0: jax.Array,
    key1: jax.Array,
    first_head: jax.Array,
    shape: tuple[int, ...],
    dropped: int,
    first_query: jax.Array | None = None,
) -> jax.Array:
    """bool [H, T, Q], False with probability dropped / RESOLUTION, for consecutive heads and queries; None:
    from the first query on.

    A block of the generator gives four draws, one for each quarter of the keys: whole registers of words
    then become whole registers of draws, without moving data.
    """
    heads, length, queries = shape
    words_of_keys = (heads, length // 4, queries)
    head, row, column = (jax.lax.broadcasted_iota(jnp.uint32, words_of_keys, axis) for axis in range(3))
    if first_query is not None:
        column = column + first_query
    words = threefry2x32((key0, key1), ((first_head + head) * (length // 4) + row, column))
    # The upper and the lower 16 bits of a word, as signed numbers: the chip cannot compare unsigned ones.
    draws = [draw.astype(jnp.int32) for word in words for draw in (word, word << jnp.uint32(16))]
    return jnp.concatenate(draws, axis=1) >= (dropped << 16) - (1 << 31)


def threefry2x32(
    key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array], rounds: int = _ROUNDS
) -> tuple[jax.Array, jax.Array]:
    """Two random words, uint32 of the counters' shape, from two words of key (Salmon et al. 2011, "Parallel
    random numbers: as easy as 1, 2, 3")."""
    keys = (*key, key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = counter[0] + key[0], counter[1] + key[1]
    for number in range(rounds):
        group, turn = divmod(number, 4)
        x = x + y
        y = _rotated(y, _ROTATIONS[group % 2][turn]) ^ x
        if turn == 3:
            x = x + keys[(group + 1) % 3]
            y = y + (keys[(group + 2) % 3] + jnp.uint32(group + 1))
    return x, y


def _rotated(x: jax.Array, bits: int) -> jax.Array:
    return (x << jnp.uint32(bits)) | (x >> jnp.uint32(32 - bits))
