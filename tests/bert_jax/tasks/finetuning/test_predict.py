"""Prediction in parts gives the outputs of whole batches, in order, with few batches in memory at once."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.tasks.classify import Classification
from bert_jax.tasks.finetuning.outputs import predict
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import Params
from tests.bert_jax.tasks.small_batch import LABELS, LENGTH, MODEL, make_batch

LARGE = 3 * 2048 // LENGTH // 2  # rows with one and a half times the positions of a part


@pytest.fixture(scope="module")
def program() -> Program:
    config = FineTuningConfig(model=MODEL, num_labels=LABELS, global_batch_size=4)
    return make_program(Classification(config), config, jax.devices()[:1])


@pytest.fixture(scope="module")
def params(program: Program) -> Params:
    return program.init().params


def numbered(rows: int, first: int = 0, padding_rows: int = 0) -> dict[str, np.ndarray]:
    """A batch whose rows are numbered from `first`; padding rows have the number -1."""
    batch = make_batch("classification", rows, padding_rows=padding_rows)
    batch["input_ids"] = np.roll(batch["input_ids"], first, axis=1)
    batch["row"] = np.where(np.arange(rows + padding_rows) < rows, first + np.arange(rows + padding_rows), -1)
    return batch


@pytest.mark.parametrize(
    ("rows", "padding", "parts"),
    [
        (LARGE - 5, 5, [LARGE // 2, LARGE // 2 - 5]),
        (LARGE - 6, 5, [LARGE // 2, LARGE // 2 - 6]),  # an odd number of rows: the last part is padded
        (7, LARGE, [7]),  # parts that hold only padding are skipped
    ],
)
def test_a_large_batch_goes_in_equal_parts(
    rows: int, padding: int, parts: list[int], program: Program, params: Params
) -> None:
    batch = numbered(rows, padding_rows=padding)
    found = list(predict(program, params, [batch]))
    assert [len(numbers) for numbers, _ in found] == parts
    assert np.concatenate([numbers for numbers, _ in found]).tolist() == list(range(rows))
    whole = np.asarray(program.predict_step(params, program.put(batch)))
    np.testing.assert_allclose(
        np.concatenate([outputs for _, outputs in found]), whole[:rows], rtol=1e-5, atol=1e-6
    )


def test_batches_of_several_shapes_keep_their_order(program: Program, params: Params) -> None:
    sizes = [4, 4, 6, 4, 6, 6, 4, 4]
    batches = [numbered(size, first=100 * i) for i, size in enumerate(sizes)]
    parts = list(predict(program, params, batches))
    assert [rows[0] for rows, _ in parts] == [100 * i for i in range(len(sizes))]
    for batch, (_, outputs) in zip(batches, parts, strict=True):
        alone = np.asarray(program.predict_step(params, program.put(batch)))
        np.testing.assert_array_equal(outputs, alone)


def test_only_some_batches_are_taken_ahead(program: Program, params: Params) -> None:
    taken = []

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for i in range(100):
            taken.append(i)
            yield numbered(4)

    results = predict(program, params, batches())
    for _ in range(5):
        next(results)
    assert len(taken) < 10


def test_what_fails_in_a_thread_is_raised(program: Program, params: Params) -> None:
    good = numbered(4)
    bad = {name: array for name, array in good.items() if name != "input_mask"}
    with pytest.raises(KeyError, match="input_mask"):
        list(predict(program, params, [good, good, bad, good]))
