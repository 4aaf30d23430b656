"""Packed batches hold the rows of padded ones, whole, side by side, in few shapes."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.tasks.finetuning.batches import lengths_up_to, training_batches
from data_pipeline.tasks.finetuning.packing import Packing, choose_packing, place_rows
from data_pipeline.tasks.finetuning.rows import Rows
from tests.data_pipeline.tasks.small_rows import make_rows

choose = functools.partial(choose_packing, unit=1, num_steps=1000, compiling=20_000)


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=40), max_rows=st.integers(1, 6))
def test_rows_have_a_place_each_and_lines_are_filled_from_the_left(sizes: list[int], max_rows: int) -> None:
    lines, numbers, columns = place_rows(np.array(sizes), Packing(length=30, max_rows=max_rows))
    for line in range(lines.max() + 1):
        here = np.flatnonzero(lines == line)
        here = here[np.argsort(numbers[here])]
        assert numbers[here].tolist() == list(range(len(here)))
        assert 1 <= len(here) <= max_rows
        ends = np.cumsum([sizes[row] for row in here])
        assert columns[here].tolist() == [0, *ends[:-1]]
        assert ends[-1] <= 30


def test_rows_take_the_fullest_line_that_has_space() -> None:
    lines, _, columns = place_rows(np.array([4, 7, 5, 3]), Packing(length=10, max_rows=3))
    assert lines.tolist() == [1, 0, 1, 0]
    assert columns.tolist() == [5, 0, 0, 7]


@pytest.mark.parametrize("width", [1, 2])
def test_packed_batches_hold_the_rows_of_padded_ones(width: int) -> None:
    rows = make_rows([5, 17, 9, 8, 6, 3, 12, 4, 7, 2], width)
    order = {"batch_size": 4, "seed": 1, "first_step": 0, "num_steps": 6}
    packing = Packing(length=32, max_rows=3, unit=2)
    batches = list(training_batches(rows, **order, packing=packing))
    assert len(batches) == 6
    for padded, packed in zip(training_batches(rows, **order), batches, strict=True):
        assert sorted(packed["row"][packed["row"] >= 0]) == sorted(padded["row"])
        assert packed["input_ids"].shape[1] == 32
        assert len(packed["input_ids"]) % 2 == 0
        assert packed["row"].shape == packed["labels"].shape == (len(packed["input_ids"]), 3)
        dtypes = dict.fromkeys(packed, np.dtype(np.int32)) | {"values": np.dtype(np.float32)}
        assert {name: x.dtype for name, x in packed.items()} == dtypes
        for line, slot in np.argwhere(packed["row"] >= 0):
            check_row(rows, packed, line, slot)
        real = packed["input_mask"] > 0
        assert real.sum() == padded["input_mask"].sum()
        assert not packed["input_ids"][~real].any()
        assert not packed["segment_ids"][~real].any()
        assert (packed["tag_ids"][~real] == -1).all()
        nobody = packed["row"] < 0
        assert not any(packed[name][nobody].any() for name in rows.targets)
        assert not packed["instance_starts"][nobody].any()


def check_row(rows: Rows, packed: dict[str, np.ndarray], line: int, slot: int) -> None:
    """One row of a packed batch is there, whole."""
    width, row = rows.sequences_per_row, packed["row"][line, slot]
    starts = np.atleast_1d(packed["instance_starts"][line, slot])
    for offset, start in enumerate(starts):
        ids = rows.tokens["input_ids"][row * width + offset]
        for name in rows.tokens:
            assert packed[name][line, start : start + len(ids)].tolist() == ids.tolist()
        assert (packed["input_mask"][line, start : start + len(ids)] == 1).all()
    assert packed["labels"][line, slot] == row + 1
    assert packed["values"][line, slot] == row + 0.5
    assert packed["entity_positions"][line, slot].tolist() == [starts[0] + 1, starts[0] + 2]


def test_an_empty_sequence_has_no_start() -> None:
    rows = make_rows([4, 3, 0, 2, 0, 0], width=3)
    packing = Packing(length=16, max_rows=2)
    (batch,) = training_batches(rows, batch_size=2, seed=0, first_step=0, num_steps=1, packing=packing)
    assert batch["instance_starts"].tolist() == [[[0, 4, 0], [7, 0, 0]]]


def test_packing_is_chosen_where_it_computes_less() -> None:
    lengths = list(np.random.default_rng(0).geometric(0.1, 400).clip(3, 50))
    ladder = lengths_up_to(128)
    packing = choose(make_rows(lengths), 32, ladder)
    assert packing is not None
    assert packing.length == 64
    assert choose(make_rows([16] * 100), 32, ladder) is None
    assert choose(make_rows([120] * 50 + [60] * 50), 2, ladder, unit=2) is None


def test_more_shapes_are_compiled_the_less_that_costs() -> None:
    rows = make_rows(list(np.random.default_rng(0).integers(10, 120, 1000)))

    def shapes(num_steps: int, compiling: float) -> int:
        packing = choose(rows, 32, lengths_up_to(128), num_steps=num_steps, compiling=compiling)
        batches = training_batches(
            rows, batch_size=32, seed=0, first_step=0, num_steps=num_steps, packing=packing
        )
        return len({batch["input_ids"].shape for batch in batches})

    assert shapes(100, compiling=1e7) == 1
    assert shapes(100, compiling=20_000) < shapes(100, compiling=100)
    assert shapes(100, compiling=20_000) < shapes(1000, compiling=20_000)


@pytest.mark.parametrize("unit", [1, 4])
def test_batches_have_few_shapes_that_devices_and_micro_batches_divide(unit: int) -> None:
    rows = make_rows(list(np.random.default_rng(0).geometric(0.1, 3000).clip(3, 50)))
    packing = choose(rows, 32, lengths_up_to(128), unit=unit)
    assert packing is not None
    batches = training_batches(rows, batch_size=32, seed=0, first_step=0, num_steps=90, packing=packing)
    lines = {len(batch["input_ids"]) for batch in batches}
    assert len(lines) <= 4
    assert all(count % unit == 0 for count in lines)


def test_rows_of_several_sequences_may_be_longer_than_the_model() -> None:
    random = np.random.default_rng(0)
    rows = make_rows(list(random.integers(10, 120, 400)), width=4)
    packing = choose(rows, 16, lengths_up_to(128))
    assert packing is not None
    assert packing.length % 64 == 0
    assert packing.length >= rows.sequence_lengths().sum(axis=1).max() > 128


def test_counts_of_lines_go_up_in_steps_of_an_eighth() -> None:
    packing = Packing(length=64, max_rows=4, unit=2, fewest=5)
    assert [packing.num_lines(used) for used in (1, 5, 7, 15, 17, 31, 33, 37)] == [
        6,
        6,
        8,
        16,
        18,
        32,
        36,
        40,
    ]
