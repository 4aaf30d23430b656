"""The curves of a run: `metrics.jsonl`, one JSON object a line, and the same for TensorBoard.

On resume both are cut back to the restored step, so that an interrupted run ends with the rows of
an undisturbed one. What a clock decides is under the key "timing"; all else is reproducible.
"""

import json
import os
from pathlib import Path
from typing import Any, Protocol

from bert_jax import processes
from bert_jax.tensorboard import SummaryWriter

FILE_NAME = "metrics.jsonl"


class Log(Protocol):
    """Where rows of metrics go."""

    def write(self, row: dict[str, Any]) -> None:
        """Adds one row, which has at least "step" and "split"."""

    def sync(self) -> None:
        """Makes the rows so far survive a power cut: what a checkpoint promises of its steps."""

    def close(self) -> None: ...


def open_log(workdir: Path, step: int) -> Log:
    """The log of a run that goes on from a step; only one process of the run writes it."""
    return MetricLog(workdir, step) if processes.is_first() else NoLog()


class NoLog:
    """Writes nothing."""

    def write(self, row: dict[str, Any]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class MetricLog:
    """Appends rows; opened at a step, it forgets everything later."""

    def __init__(self, workdir: Path, step: int) -> None:
        path = workdir / FILE_NAME
        _rewrite(path, [row for row in read_rows(path) if row["step"] <= step])
        self._file = path.open("a", encoding="utf-8")
        self._curves = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in _curves(row).items():
            self._curves.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        self._curves.flush()

    def close(self) -> None:
        self._file.close()
        self._curves.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file, in order; a torn last line (a killed writer's) is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _rewrite(path: Path, rows: list[dict[str, Any]]) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    beside.replace(path)


def _curves(row: dict[str, Any]) -> dict[str, float]:
    values = {**row, **row.get("timing", {})}
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k != "step"}
    return {f"{row['split']}/{name}": value for name, value in numbers.items()}
