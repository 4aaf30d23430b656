"""The curves of a run: `metrics.jsonl`, one JSON object a line, and the same for TensorBoard.

On resume, rows after the restored step are dropped and TensorBoard's file is rewritten from the
others, so that an interrupted run ends with the same rows as an uninterrupted one. Everything that
depends on a clock is under the key "timing"; all else is reproducible.
"""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from bert_jax.training.tensorboard import EventsFile
from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError
from data_pipeline.json_text import parse_json

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIRECTORY = "tensorboard"

_SECONDS_BETWEEN_FLUSHES = 120.0  # a flush to a mounted bucket uploads the file


class MetricLog:
    """Appends rows; opening it at a step drops all later rows."""

    def __init__(self, workdir: Path, step: int) -> None:
        path = workdir / METRICS_FILE
        rows = [row for row in read_rows(path) if row["step"] <= step]
        with atomically(path) as partial:
            partial.write_text("".join(map(_as_line, rows)), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")
        self._curves = _begin_curves(workdir / TENSORBOARD_DIRECTORY)
        self.evaluated_at = max((row["step"] for row in rows if row["split"] == "heldout"), default=-1)
        """Step of the last evaluation among the rows that were kept; -1 if there is none."""
        for row in rows:
            self._draw(row)
        self._flush_curves()

    def write(self, row: dict[str, Any]) -> None:
        """Adds one row, which has at least "step" and "split".

        Raises:
          ValueError: another value than those and "timing" is no number, so that the row could not be read.
        """
        row = {**row, "timing": {**row.get("timing", {}), "time": time.time()}}
        if not _is_row(row):
            raise ValueError(f"{row} is not a row of metrics: its values must be numbers")
        self._file.write(_as_line(row))
        self._file.flush()
        self._draw(row)
        if time.time() > self._last_flush + _SECONDS_BETWEEN_FLUSHES:
            self._flush_curves()

    def sync(self) -> None:
        """Makes the rows so far survive a power cut.

        TensorBoard's file need not survive, since the next start rewrites it from the rows.
        """
        os.fsync(self._file.fileno())
        self._flush_curves()

    def close(self) -> None:
        self._file.close()
        with contextlib.suppress(OSError):  # the next start rewrites the curves
            self._curves.close()

    def _draw(self, row: dict[str, Any]) -> None:
        self._curves.add(row["step"], row.get("timing", {}).get("time", 0.0), _curves(row))

    def _flush_curves(self) -> None:
        self._curves.flush()
        self._last_flush = time.time()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file, in order, without an incomplete last line (of a killed writer).

    Raises UserError naming a line that is no row.
    """
    if not path.exists():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
        except ValueError:
            if number == len(lines):
                break
            row = None
        if not _is_row(row):
            raise UserError(f"{path}, line {number} is not a row of metrics; remove the line")
        rows.append(row)
    return rows


def _is_row(value: Any) -> bool:
    """Whether a value is an object with a step and a split, whose other values but timing are numbers."""
    if not isinstance(value, dict) or not {"step", "split"} <= set(value):
        return False
    numbers = {name: number for name, number in value.items() if name not in ("split", "timing")}
    return (
        isinstance(value["split"], str)
        and isinstance(value.get("timing", {}), dict)
        and all(isinstance(number, int | float) for number in numbers.values())
    )


def heldout_rows(workdir: Path) -> list[dict[str, Any]]:
    """Rows of a run's evaluations on held-out documents, in order."""
    return [row for row in read_rows(workdir / METRICS_FILE) if row["split"] == "heldout"]


def _begin_curves(directory: Path) -> EventsFile:
    directory.mkdir(exist_ok=True)
    for file in directory.glob("events.*"):
        file.unlink()
    return EventsFile(directory)


def _as_line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _curves(row: dict[str, Any]) -> dict[str, float]:
    values = {**row, **row.get("timing", {})}
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k not in ("step", "time")}
    return {f"{row['split']}/{name}": value for name, value in numbers.items()}
