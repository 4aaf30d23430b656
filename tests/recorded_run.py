"""Runs `bert-jax` and records every row of every training batch that it makes.

    python -m tests.recorded_run DIRECTORY SECONDS ARGUMENTS...

Each process writes lines `STEP ROW DIGEST` to its own file in DIRECTORY. A batch, also of an evaluation,
takes at least SECONDS to make, so that a test has time to disturb the run.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.cli.main import main
from data_pipeline.pretraining import batches


def recorded(
    make: Callable[..., Iterator[Any]], directory: Path, seconds: float
) -> Callable[..., Iterator[Any]]:
    """Wraps `training_batches` so that its rows are recorded."""

    def training_batches(*args: Any, first_step: int, rows: Any, **settings: Any) -> Iterator[Any]:
        directory.mkdir(exist_ok=True)
        ranges = rows(settings["global_batch_size"])
        numbers = np.concatenate([np.arange(start, stop) for start, stop in ranges])
        with (directory / str(os.getpid())).open("a") as file:
            for step, batch in enumerate(
                make(*args, first_step=first_step, rows=rows, **settings), first_step
            ):
                for place, number in enumerate(numbers):
                    file.write(f"{step} {number} {digest(batch, place)}\n")
                file.flush()
                time.sleep(seconds)
                yield batch

    return training_batches


def slow(make: Callable[..., Iterator[Any]], seconds: float) -> Callable[..., Iterator[Any]]:
    """Wraps `evaluation_batches` so that a batch takes longer."""

    def evaluation_batches(*args: Any, **settings: Any) -> Iterator[Any]:
        for batch in make(*args, **settings):
            time.sleep(seconds)
            yield batch

    return evaluation_batches


def digest(batch: Mapping[str, np.ndarray], place: int) -> str:
    """A hash of one row of a batch."""
    content = b"".join(batch[name][place].tobytes() for name in sorted(batch))
    return hashlib.sha256(content).hexdigest()


def read_record(directory: Path) -> dict[tuple[int, int], set[str]]:
    """(step, row) -> the digests that were recorded for it: one, unless something is wrong."""
    found: dict[tuple[int, int], set[str]] = {}
    for file in directory.iterdir():
        for line in file.read_text().splitlines():
            step, row, digest = line.split()
            found.setdefault((int(step), int(row)), set()).add(digest)
    return found


if __name__ == "__main__":
    seconds = float(sys.argv[2])
    batches.training_batches = recorded(batches.training_batches, Path(sys.argv[1]), seconds)
    batches.evaluation_batches = slow(batches.evaluation_batches, seconds)
    sys.exit(main(sys.argv[3:]))
