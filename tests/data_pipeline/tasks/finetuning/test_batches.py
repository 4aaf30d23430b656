"""Batches: functions of (rows, seed, step), every row once an epoch, padded no further than needed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.tasks.finetuning.batches import (
    evaluation_batches,
    lengths_up_to,
    rows_of_step,
    training_batches,
)
from tests.data_pipeline.tasks.small_rows import make_rows


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    seed=st.integers(0, 2**64 - 1),
    epochs=st.integers(1, 3),
)
def test_every_row_comes_once_in_every_epoch(num_rows, batch_size, seed, epochs):
    steps = -(-epochs * num_rows // batch_size)
    numbers = np.concatenate([rows_of_step(num_rows, batch_size, seed, step) for step in range(steps)])
    for epoch in range(epochs):
        assert sorted(numbers[epoch * num_rows : (epoch + 1) * num_rows]) == list(range(num_rows))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(rows_of_step(50, 50, seed, epoch))
        for seed in (0, 1, 2**64 - 1, 2**64 - 2)
        for epoch in (0, 1, 100_000)
    }
    assert len(orders) == 12


def test_order_is_that_of_numpys_philox_bits():
    # Stored numbers: if the order changed with numpy's version, a resumed run would see another order.
    assert rows_of_step(10, 10, 7, 0).tolist() == [8, 4, 1, 6, 3, 2, 7, 5, 9, 0]


def test_a_run_that_starts_late_gives_the_same_batches():
    rows = make_rows([5, 17, 30, 8, 9, 3, 40])
    settings_ = {"batch_size": 3, "seed": 4, "num_steps": 9}
    whole = list(training_batches(rows, first_step=0, **settings_))
    late = list(training_batches(rows, first_step=5, **settings_))
    assert len(whole) == 9
    assert len(late) == 4
    for expected, batch in zip(whole[5:], late, strict=True):
        assert list(batch) == list(expected)
        for name, values in batch.items():
            np.testing.assert_array_equal(values, expected[name])


def test_a_batch_holds_its_rows_and_padding():
    rows = make_rows([5, 17, 30, 8])
    for batch in training_batches(rows, batch_size=2, seed=0, first_step=0, num_steps=4):
        length = batch["input_ids"].shape[1]
        longest = max(len(rows.tokens["input_ids"][row]) for row in batch["row"])
        assert length == min(n for n in (16, 24, 32) if n >= longest)
        for line, row in enumerate(batch["row"]):
            filled = len(rows.tokens["input_ids"][row])
            rest = length - filled
            assert batch["input_ids"][line].tolist() == [row + 1] * filled + [0] * rest
            assert batch["segment_ids"][line].tolist() == [row + 1] * filled + [0] * rest
            assert batch["tag_ids"][line].tolist() == [row + 1] * filled + [-1] * rest
            assert batch["input_mask"][line].tolist() == [1] * filled + [0] * rest
            assert batch["labels"][line] == row + 1
        integers = ("input_ids", "input_mask", "segment_ids", "tag_ids", "labels", "entity_positions", "row")
        dtypes = dict.fromkeys(integers, np.dtype(np.int32)) | {"values": np.dtype(np.float32)}
        assert {name: values.dtype for name, values in batch.items()} == dtypes


def test_rows_of_several_sequences_have_an_axis_for_them():
    rows = make_rows([5, 17, 0, 8, 9, 3], width=3)
    (batch,) = evaluation_batches(rows, 2)
    assert batch["input_ids"].shape == batch["tag_ids"].shape == (2, 3, 24)
    assert batch["input_mask"].sum(axis=2).tolist() == [[8, 9, 3], [5, 17, 0]]
    assert batch["input_ids"][:, :, 0].tolist() == [[4, 5, 6], [1, 2, 0]]


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=20), batch_size=st.integers(1, 7))
def test_evaluation_has_every_row_once_the_longest_first(lengths, batch_size):
    batches = list(evaluation_batches(make_rows(lengths), batch_size))
    numbers = np.concatenate([batch["row"] for batch in batches])
    assert len(numbers) % batch_size == 0
    assert sorted(numbers[numbers >= 0]) == list(range(len(lengths)))
    in_order = [lengths[number] for number in numbers if number >= 0]
    assert in_order == sorted(lengths, reverse=True)


def test_evaluation_has_a_length_of_its_own_where_enough_batches_fit_it():
    def padded(lengths: list[int], longest: int) -> list[int]:
        batches = evaluation_batches(make_rows(lengths), 2, lengths_up_to(longest))
        return [batch["input_ids"].shape[1] for batch in batches]

    assert padded([70, 50, *[12] * 8], 96) == [96, 12, 12, 12, 12]
    assert padded([70, 50, *[12] * 6], 96) == [96, 16, 16, 16]
    assert padded([12] * 6, 96) == [16, 16, 16]
    assert padded([11] * 8, 11) == [11, 11, 11, 11]


def test_evaluation_has_no_more_sequences_than_enough_batches_need():
    def shapes(counts: list[int], batch_size: int) -> list[tuple[int, ...]]:
        width = max(counts)
        rows = make_rows([n for count in counts for n in [16] * count + [0] * (width - count)], width)
        batches = list(evaluation_batches(rows, batch_size))
        for batch in batches:
            for row, mask in zip(batch["row"], batch["input_mask"], strict=True):
                assert row < 0 or mask.sum() == 16 * counts[row]
        return [batch["input_ids"].shape for batch in batches]

    few, many = [2] * 8, [5, 3, 4]
    assert shapes([*few, *many], 2) == [(2, 5, 16), (2, 5, 16), *[(2, 2, 16)] * 4]
    assert shapes([*few[:4], *many], 2) == [(2, 5, 16)] * 4
    assert shapes([4] * 8, 2) == [(2, 4, 16)] * 4


def test_rows_that_fill_up_the_last_batch_count_nowhere():
    *_, last = evaluation_batches(make_rows([5, 6, 7, 8, 9]), 3)
    assert last["row"].tolist() == [1, 0, -1]
    assert last["labels"].tolist() == [2, 1, 0]
    assert last["values"].tolist() == [1.5, 0.5, 0]
    assert last["entity_positions"].tolist() == [[1, 2], [1, 2], [0, 0]]
    assert not last["input_mask"][2].any()
    assert not last["input_ids"][2].any()
    assert (last["tag_ids"][2] == -1).all()


def test_no_batch_is_longer_than_the_model():
    assert lengths_up_to(128) == (16, 24, 32, 48, 64, 96, 128)
    assert lengths_up_to(100) == (16, 24, 32, 48, 64, 96, 100)
    assert lengths_up_to(8) == (8,)
    assert lengths_up_to(8192)[-8:] == (768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
    rows = make_rows([5, 97])
    (batch,) = evaluation_batches(rows, 2, lengths_up_to(100))
    assert batch["input_ids"].shape == (2, 100)
    with pytest.raises(ValueError, match="row 1 has 97 tokens; batches have 64"):
        evaluation_batches(rows, 2, lengths_up_to(64))
    with pytest.raises(ValueError, match="no rows"):
        training_batches(make_rows([]), batch_size=2, seed=0, first_step=0, num_steps=1)
