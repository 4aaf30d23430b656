"""The instance at each position of a stream, and the random bits that an example is made with.

Both are pure functions of (seed, stream, position), where a position counts examples from the start
of the stream. So any process can make any batch, in any order, at the same cost.
"""

from typing import Any, Protocol

import numpy as np

from data_pipeline.tensorflow_cpu import tf

_PHILOX = 1
# Four rounds, TensorFlow's default, leave a correlation between index and result that is visible at
# 1,000 instances (standard deviation 2 where a random permutation has 1); eight do not.
_SHUFFLE_ROUNDS = 8
# The upper half of Philox's counter, which tells apart what one seed and stream draw.
_COUNTER_OF_BITS, _COUNTER_OF_KEYS = 0, 1
_DRAWS_PER_COUNT = 4  # 32-bit draws; Philox makes 128 bits for each value of its counter


def draws_per_example(needed: int) -> int:
    """`needed` rounded up to a multiple of the draws that one count of the generator gives."""
    return -(-needed // _DRAWS_PER_COUNT) * _DRAWS_PER_COUNT


def random_bits(
    seed: int, stream: int, first_position: tf.Tensor, rows: tf.Tensor, num_draws: int
) -> tf.Tensor:
    """uint32 [rows, num_draws] of random bits; row r depends on (seed, stream, first_position + r).

    Args:
      seed, stream: below 2**32 each; together they are the generator's key.
      first_position: int64 scalar.
      rows: number of consecutive positions.
      num_draws: a multiple of 4, the same for all positions of a stream.
    """
    count = tf.cast(first_position, tf.uint64) * tf.constant(num_draws // _DRAWS_PER_COUNT, tf.uint64)
    return _philox(seed, stream, count, _COUNTER_OF_BITS, [rows, num_draws])


def shuffled_instances(seed: int, stream: int, positions: tf.Tensor, num_instances: int) -> tf.Tensor:
    """int64 [n]: the instance at each of the int64 `positions` [n].

    Each run of `num_instances` positions is an epoch: it visits every instance once, in its own
    pseudo-random order (a block cipher on the instance numbers, so nothing is stored or replayed).

    Args:
      seed, stream: below 2**32 each.
      positions: counted from the start of the stream.
      num_instances: in an epoch.
    """
    return tf.raw_ops.RandomIndexShuffle(
        index=positions % num_instances,
        seed=_cipher_keys(seed, stream, positions // num_instances),
        max_index=tf.constant(num_instances - 1, tf.int64),
        rounds=_SHUFFLE_ROUNDS,
    )


def _cipher_keys(seed: int, stream: int, epochs: tf.Tensor) -> tf.Tensor:
    """uint32 [n, 3]: the cipher's key in each of the int64 `epochs` [n].

    Of each word the cipher takes only half as many bits as an instance number has, so seed, stream and epoch
    themselves would be the same to it as others: 0 as 256, with 60,000 instances. Time and memory grow with
    the span of the epochs, so they must lie close together.
    """
    first, last = tf.reduce_min(epochs), tf.reduce_max(epochs)
    shape = tf.stack([last - first + 1, _DRAWS_PER_COUNT])
    bits = _philox(seed, stream, tf.cast(first, tf.uint64), _COUNTER_OF_KEYS, shape)
    return tf.gather(bits[:, :3], epochs - first)


def _philox(seed: int, stream: int, count: tf.Tensor, upper: int, shape: Any) -> tf.Tensor:
    """uint32 of a shape, from the count and upper half of the generator's counter on."""
    assert 0 <= seed < 2**32, seed
    assert 0 <= stream < 2**32, stream
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape,
        key=tf.constant([(seed << 32) | stream], tf.uint64),
        counter=tf.stack([count, tf.constant(upper, tf.uint64)]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )


def shuffled_columns(
    seed: int, stream: int, positions: tf.Tensor, num_instances: int, columns: int
) -> tf.Tensor:
    """int64 [n, columns] of instances; column 0 is `shuffled_instances`.

    Column c is the same order, c / columns of an epoch ahead; so each column visits every instance once
    per epoch.
    """
    ahead = [column * num_instances // columns for column in range(columns)]
    return tf.stack([shuffled_instances(seed, stream, positions + a, num_instances) for a in ahead], axis=1)


def evenly_spaced(num_instances: int, examples: int) -> np.ndarray:
    """int64 [n]: at most `examples` instances, evenly spaced."""
    wanted = min(examples, num_instances)
    return np.arange(wanted) * num_instances // max(wanted, 1)


class Source(Protocol):
    """Instances by number, for rows of one length."""

    @property
    def num_draws(self) -> int:
        """Number of 32-bit random draws needed for one row."""

    @property
    def instances_per_row(self) -> int:
        """Number of instance numbers needed for one row."""

    def __len__(self) -> int: ...

    def order(self, seed: int, stream: int, positions: tf.Tensor) -> tf.Tensor:
        """The numbers of the instances at int64 `positions` [n] of a stream: int64 [n, instances_per_row]."""
        return shuffled_columns(seed, stream, positions, len(self), self.instances_per_row)

    def spread(self, examples: int) -> np.ndarray:
        """The numbers of at most so many instances, evenly spaced: int64 [m]."""
        return evenly_spaced(len(self), examples)

    def make_batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        """(numbers int64 [b, instances_per_row], bits uint32 [b, num_draws], progress float64 []) -> keys of
        `batch_spec`; `progress` is the fraction of the run that was done before the batch.

        The dataset does not keep the source alive: TensorFlow never releases a Python function that it was
        given, so a function that held a corpus would keep it mapped until the process ends.
        """
