"""Outputs of a fine-tuned model for rows of data, batch by batch, so that memory stays bounded."""

import collections
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import jax
import numpy as np

from bert_jax.training.program import Program
from bert_jax.training.train_step import Params

NumpyBatch: TypeAlias = Mapping[str, np.ndarray]

# Batches that the devices work on while the host looks at the result of an earlier one.
_BATCHES_AHEAD = 2

# A CPU computes two batches at once: while one of them keeps a single core busy, the other has the rest.
_CPU_THREADS = 2
# An array of 32 MiB or more is new memory each time, which the system clears first. At so many positions
# BERT-BASE's widest has 24 MiB.
_CPU_POSITIONS = 2048


def predict(
    program: Program, params: Params, batches: Iterable[NumpyBatch]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Runs a fine-tuned model on batches.

    Args:
      program: compiled fine-tuning task.
      params: parameters on the devices.
      batches: host batches with `row`, the number of each row, negative for padding rows.

    Yields:
      int32 [R], the numbers of the real rows of a batch, or on a CPU of a part of it, and their float32
      outputs [R, ...]; in order.
    """

    def start(batch: NumpyBatch) -> jax.Array:
        return program.predict_step(params, program.put(batch))

    # Several devices may have to talk to each other, which they do in the order of one thread's calls.
    on_cpu = len(program.devices) == 1 and program.devices[0].platform == "cpu"
    if on_cpu:
        batches = (part for batch in batches for part in _parts(batch))
    compiled: set[tuple[int, ...]] = set()
    waiting: collections.deque[tuple[np.ndarray, Callable[[], np.ndarray]]] = collections.deque()
    with ThreadPoolExecutor(_CPU_THREADS) as threads:
        for batch in batches:
            shape = batch["input_ids"].shape
            if on_cpu and shape in compiled:
                # XLA runs what one thread calls one after the other, so the thread that calls has to wait.
                outputs = threads.submit(lambda batch: np.asarray(start(batch)), batch).result
            else:
                outputs = functools.partial(np.asarray, start(batch))
                compiled.add(shape)
            waiting.append((batch["row"], outputs))
            if len(waiting) > _BATCHES_AHEAD:
                yield _fetch(*waiting.popleft())
        while waiting:
            yield _fetch(*waiting.popleft())


def _parts(batch: NumpyBatch) -> Iterator[NumpyBatch]:
    """The batch, or parts of equal shape with at most so many positions as a CPU is fast at.

    The last is filled up with rows of zeros; those that are nothing but padding are left out.
    """
    num_rows = len(batch["row"])
    fitting = max(_CPU_POSITIONS * num_rows // batch["input_ids"].size, 1)
    size = math.ceil(num_rows / math.ceil(num_rows / fitting))
    for first in range(0, num_rows, size):
        part = {name: array[first : first + size] for name, array in batch.items()}
        if first == 0 or (part["row"] >= 0).any():
            yield _fill_up(part, size)


def _fill_up(batch: NumpyBatch, num_rows: int) -> NumpyBatch:
    missing = num_rows - len(batch["row"])
    if not missing:
        return batch
    rows = {name: np.zeros((missing, *array.shape[1:]), array.dtype) for name, array in batch.items()}
    rows["row"][:] = -1
    return {name: np.concatenate([array, rows[name]]) for name, array in batch.items()}


def _fetch(rows: np.ndarray, outputs: Callable[[], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    real = rows >= 0
    return rows[real], outputs()[real]


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
