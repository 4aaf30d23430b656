"""Order and random bits depend on (seed, stream, position) and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.pretraining import order
from data_pipeline.pretraining.order import draws_per_example, random_bits, shuffled_instances
from data_pipeline.tensorflow_cpu import tf


def draw(seed: int, stream: int, first: int, rows: int, num_draws: int) -> np.ndarray:
    return random_bits(seed, stream, tf.constant(first, tf.int64), rows, num_draws).numpy()


def place(seed: int, stream: int, positions: range, instances: int) -> np.ndarray:
    return shuffled_instances(seed, stream, tf.constant(list(positions), tf.int64), instances).numpy()


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    stream=st.integers(0, 2**32 - 1),
    start=st.integers(0, 2**50),
    skipped=st.integers(0, 40),
    rows=st.integers(1, 60),
    quads=st.integers(1, 90),
)
def test_bits_of_a_position_do_not_depend_on_the_batch(seed, stream, start, skipped, rows, quads):
    whole = draw(seed, stream, start, 100, 4 * quads)
    part = draw(seed, stream, start + skipped, rows, 4 * quads)
    np.testing.assert_array_equal(part, whole[skipped : skipped + rows])


def test_bits_of_all_positions_seeds_and_streams_differ():
    draws = [draw(seed, stream, 0, 500, 4) for seed in (0, 1, 2**32 - 1) for stream in (0, 1)]
    assert len(np.unique(np.concatenate(draws), axis=0)) == 6 * 500


def test_bits_are_even_in_every_place():
    bits = draw(5, 0, 10**9, 1000, 16).ravel()
    ones = [int((bits >> bit & 1).sum()) for bit in range(32)]
    assert all(abs(count - len(bits) / 2) < 5 * len(bits) ** 0.5 / 2 for count in ones)


@pytest.mark.parametrize("other", [1, 2**8, 2**16, 2**31])
def test_every_seed_stream_and_epoch_has_an_order_of_its_own(other):
    order, later = place(0, 0, range(1000), 1000), range(1000 * other, 1000 * (other + 1))
    orders = (
        place(other, 0, range(1000), 1000),
        place(0, other, range(1000), 1000),
        place(0, 0, later, 1000),
    )
    for another in orders:
        assert (order == another).mean() < 0.01


def test_streams_beyond_32_bits_are_refused():
    with pytest.raises(AssertionError):
        place(3, 2**32, range(10), 10)


@pytest.mark.parametrize("instances", [1, 2, 3, 7, 100, 1023, 1025])
def test_every_epoch_visits_each_instance_once(instances):
    for epoch in range(3):
        numbers = place(3, 0, range(epoch * instances, (epoch + 1) * instances), instances)
        assert sorted(numbers) == list(range(instances))


def test_epochs_seeds_and_streams_have_orders_of_their_own():
    orders = {
        tuple(place(seed, stream, range(epoch * 50, epoch * 50 + 50), 50))
        for seed in (0, 1)
        for stream in (0, 1)
        for epoch in (0, 1, 20_000)
    }
    assert len(orders) == 12


def test_a_batch_over_the_border_of_two_epochs_is_both_of_its_parts():
    together = place(1, 2, range(90, 120), 100)
    np.testing.assert_array_equal(
        together, np.concatenate([place(1, 2, range(90, 100), 100), place(1, 2, range(100, 120), 100)])
    )


def test_order_is_not_correlated_with_the_corpus():
    correlations = [
        np.corrcoef(place(0, 0, range(e * 1000, e * 1000 + 1000), 1000), range(1000))[0, 1] for e in range(40)
    ]
    # With four rounds of the cipher instead of eight, the standard deviation is about 2.
    assert np.std(correlations) * 1000**0.5 == pytest.approx(1, abs=0.4)


def test_draws_per_example_fills_whole_counts():
    assert [draws_per_example(n) for n in (1, 4, 5, 184)] == [4, 4, 8, 184]


def test_keys_of_the_order_are_no_bits_of_examples():
    bits = random_bits(3, 1, tf.constant(0, tf.int64), 9, 4).numpy()
    keys = order._cipher_keys(3, 1, tf.range(9, dtype=tf.int64)).numpy()
    assert not np.isin(keys, bits).any()
