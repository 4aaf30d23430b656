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
from typing import Any, Protocol

from bert_jax.parallel import processes
from bert_jax.training.tensorboard import Event, EventsWriter, SessionLog, Summary, scalar

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"

_SECONDS_BETWEEN_FLUSHES = 120.0  # a flush to a mounted bucket uploads the file


class Log(Protocol):
    """Where rows of metrics go."""

    evaluated_at: int
    """Step of the last evaluation that was in the log when it was opened; -1 if there is none."""

    def write(self, row: dict[str, Any]) -> None:
        """Adds one row, which has at least "step" and "split"."""

    def sync(self) -> None:
        """Makes the rows so far survive a power cut, so that a saved checkpoint has the rows of its steps.

        TensorBoard's file need not survive, since the next start rewrites it from the rows.
        """

    def close(self) -> None: ...


def open_log(workdir: Path, step: int) -> Log:
    """The log of a run that starts or resumes at a step; only process 0 writes it."""
    return MetricLog(workdir, step) if processes.is_first() else NoLog()


class NoLog:
    """Writes nothing."""

    evaluated_at = -1

    def write(self, row: dict[str, Any]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class MetricLog:
    """Appends rows; opening it at a step drops all later rows."""

    def __init__(self, workdir: Path, step: int) -> None:
        path = workdir / METRICS_FILE
        rows = [row for row in read_rows(path) if row["step"] <= step]
        _rewrite(path, rows)
        self._file = path.open("a", encoding="utf-8")
        self._curves = _begin_curves(workdir / TENSORBOARD_FOLDER)
        self.evaluated_at = max((row["step"] for row in rows if row["split"] == "heldout"), default=-1)
        for row in rows:
            self._draw(row)
        self._flush_curves()

    def write(self, row: dict[str, Any]) -> None:
        row = {**row, "timing": {**row.get("timing", {}), "time": time.time()}}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        self._draw(row)
        if time.time() > self._last_flush + _SECONDS_BETWEEN_FLUSHES:
            self._flush_curves()

    def _draw(self, row: dict[str, Any]) -> None:
        # One event a row: 10,000 rows then take 4 s at the next start, not 13 s.
        points = [point for name, value in _curves(row).items() for point in scalar(name, value).value]
        when = row.get("timing", {}).get("time")
        self._curves.write_event(Event(wall_time=when, step=row["step"], summary=Summary(value=points)))

    def _flush_curves(self) -> None:
        self._curves.flush()
        self._last_flush = time.time()

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        self._flush_curves()

    def close(self) -> None:
        self._file.close()
        with contextlib.suppress(OSError):  # the next start rewrites the curves
            self._curves.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file, in order, without an incomplete last line (of a killed writer)."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def heldout_rows(workdir: Path) -> list[dict[str, Any]]:
    """Rows of a run's evaluations on held-out documents, in order."""
    return [row for row in read_rows(workdir / METRICS_FILE) if row["split"] == "heldout"]


def _begin_curves(folder: Path) -> EventsWriter:
    """A new events file, which tells a TensorBoard that is watching to discard what it has shown.

    The caller's thread writes it. tensorboardX's usual writer has a thread of its own, and if a disk error
    ends that thread, training waits for it forever.
    """
    folder.mkdir(exist_ok=True)
    for file in folder.glob("events.*"):
        file.unlink()
    writer = EventsWriter(str(folder / "events"))
    writer.write_event(Event(wall_time=time.time(), session_log=SessionLog(status=SessionLog.START)))
    return writer


def _rewrite(path: Path, rows: list[dict[str, Any]]) -> None:
    beside = path.with_suffix(".tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()
        if rows:  # without rows there is nothing to lose
            os.fsync(file.fileno())
    beside.replace(path)


def _curves(row: dict[str, Any]) -> dict[str, float]:
    values = {**row, **row.get("timing", {})}
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and k not in ("step", "time")}
    return {f"{row['split']}/{name}": value for name, value in numbers.items()}
