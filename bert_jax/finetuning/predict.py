"""Outputs of a fine-tuned model for rows of data, batch by batch, so that memory stays bounded."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import jax
import numpy as np

from bert_jax.parallel import Program
from bert_jax.train_step import Params

NumpyBatch: TypeAlias = Mapping[str, np.ndarray]

# Batches that the devices work on while the host looks at the result of an earlier one.
_BATCHES_AHEAD = 2


def predict(
    program: Program, params: Params, batches: Iterable[NumpyBatch]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Runs a fine-tuned model on batches.

    Args:
      program: compiled fine-tuning task.
      params: parameters on the devices.
      batches: host batches with `row`, the number of each row, negative for padding rows.

    Yields:
      int32 [R], the numbers of the real rows of a batch, and their float32 outputs [R, ...]; batch by batch,
      in order.
    """
    waiting: list[tuple[np.ndarray, jax.Array]] = []
    for batch in batches:
        waiting.append((batch["row"], program.predict_step(params, program.put(batch))))
        if len(waiting) > _BATCHES_AHEAD:
            yield _fetch(*waiting.pop(0))
    for rows, outputs in waiting:
        yield _fetch(rows, outputs)


def _fetch(rows: np.ndarray, outputs: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    real = rows >= 0
    return rows[real], np.asarray(outputs)[real]


def gather(parts: Iterable[tuple[np.ndarray, np.ndarray]], num_rows: int) -> np.ndarray:
    """float32 [num_rows, ...]: outputs of one shape, in the order of the rows.

    Raises:
      ValueError: a row has no outputs.
    """
    array = np.zeros((0,), np.float32)
    found = np.zeros(num_rows, bool)
    for rows, outputs in parts:
        if not len(array):
            array = np.zeros((num_rows, *outputs.shape[1:]), np.float32)
        array[rows], found[rows] = outputs, True
    if not found.all():
        raise ValueError(f"{num_rows - found.sum()} of {num_rows} rows have no outputs")
    return array
