"""Outputs of a fine-tuned model for rows of data: batch by batch, in bounded memory, or gathered."""

import collections
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from bert_jax.tasks.finetuning.head import IMPOSSIBLE
from bert_jax.tasks.finetuning.task import Apply
from bert_jax.training.program import Program
from bert_jax.training.train_step import Params
from data_pipeline.atomic import atomically
from data_pipeline.tasks.finetuning.rows import Rows

NumpyBatch: TypeAlias = Mapping[str, np.ndarray]

# Batches that the devices work on while the host handles the result of an earlier one.
_BATCHES_AHEAD = 2

# A CPU computes two batches at once: while one of them keeps a single core busy, the other uses the rest.
_CPU_THREADS = 2
# Positions per CPU batch. The C library maps fresh, zeroed pages for every allocation of 32 MiB or more; at
# 2,048 positions BERT-BASE's widest activation, 2048 x 3072 float32, is 24 MiB.
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
      int32 [R], the numbers of the real rows of a batch (on a CPU, of a part of one), and their float32
      outputs [R, ...]; in the order of the batches.
    """

    def start(batch: NumpyBatch) -> jax.Array:
        return program.predict_step(params, program.put(batch))

    # Only a single device: several may have to communicate, which needs one thread to fix the order of calls.
    on_cpu = len(program.devices) == 1 and program.devices[0].platform == "cpu"
    if on_cpu:
        batches = (part for batch in batches for part in _parts(batch))
    compiled: set[tuple[int, ...]] = set()
    waiting: collections.deque[tuple[np.ndarray, Callable[[], np.ndarray]]] = collections.deque()
    with ThreadPoolExecutor(_CPU_THREADS) as threads:
        for batch in batches:
            shape = batch["input_ids"].shape
            if on_cpu and shape in compiled:
                # XLA runs one thread's calls one after the other, so a thread calls and awaits one batch.
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
    """The batch in parts of equal shape, with at most `_CPU_POSITIONS` positions but at least one row.

    The last part is filled up with rows of zeros; later parts that hold only padding are left out.
    """
    num_rows = len(batch["row"])
    fitting = max(_CPU_POSITIONS * num_rows // batch["input_ids"].size, 1)
    size = math.ceil(num_rows / math.ceil(num_rows / fitting))
    for first in range(0, num_rows, size):
        part = {name: array[first : first + size] for name, array in batch.items()}
        if first == 0 or (part["row"] >= 0).any():
            missing = size - len(part["row"])
            yield {
                name: np.pad(
                    array,
                    [(0, missing), *[(0, 0)] * (array.ndim - 1)],
                    constant_values=-1 if name == "row" else 0,
                )
                for name, array in part.items()
            }


def _fetch(rows: np.ndarray, outputs: Callable[[], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    real = rows >= 0
    return rows[real], outputs()[real]


def outputs_of(rows: Rows, apply: Apply) -> np.ndarray:
    """float32 [R, L]: the model's outputs in the order of the rows; IMPOSSIBLE for missing choices.

    Raises:
      ValueError: a row has no outputs.
    """
    array = np.zeros((0,), np.float32)
    found = np.zeros(len(rows), bool)
    for numbers, outputs in apply(rows):
        if not len(array):
            shape = (rows.sequences_per_row,) if rows.sequences_per_row > 1 else outputs.shape[1:]
            array = np.full((len(rows), *shape), IMPOSSIBLE, np.float32)
        array[numbers, : outputs.shape[1]], found[numbers] = outputs, True
    if not found.all():
        raise ValueError(f"{len(rows) - found.sum()} of {len(rows)} rows have no outputs")
    return array


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines atomically."""
    with atomically(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
