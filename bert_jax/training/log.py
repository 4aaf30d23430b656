"""What a run tells of itself while it trains: its speed, a progress line, `metrics.jsonl` and TensorBoard."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

from bert_jax.parallel import processes
from bert_jax.task import Sums
from bert_jax.training.metric_log import MetricLog
from bert_jax.training.program import Program
from bert_jax.training.progress import ProgressDisplay
from bert_jax.training.speed import Stopwatch

_SECONDS_WITHOUT_A_WORD = 20.0
"""If the first row of metrics takes longer, the time left is shown before it."""


class TrainingLog:
    """The log of one start of a run. Every process has one; process 0 alone writes files."""

    def __init__(
        self,
        workdir: Path,
        program: Program,
        first_step: int,
        work_left: Callable[[int], float],
        began: float | None,
        seconds_compiled: float,
    ) -> None:
        """Drops the rows after `first_step`, which this start will repeat.

        Args:
          work_left: steps done -> work of the remaining batches, in any unit.
          began: when the command began, on the clock of `time.perf_counter`; None: nothing is said of it.
          seconds_compiled: how long it has compiled since.
        """
        self._task = program.task
        self._first_step = first_step
        self._began, self._seconds_compiled = began, seconds_compiled
        self._stopwatch = Stopwatch(program.devices, work_left)
        # At step 0 nothing is kept: an earlier start may have evaluated another model or corpus there.
        self._rows = processes.run_on_all(
            lambda: MetricLog(workdir, first_step or -1) if processes.is_first() else None
        )
        self._display = ProgressDisplay(first_step, program.run.num_train_steps, program.task.metrics)
        self._has_told_speed = False

    def evaluated_at(self, step: int) -> bool:
        """Whether an earlier start logged its last evaluation at this step; all processes ask together."""
        return processes.broadcast_from_first(
            lambda: self._rows is not None and self._rows.evaluated_at == step
        )

    def count_step(self, step: int, flops: int) -> None:
        """Counts a step, the `step`-th of the run."""
        self._stopwatch.count(flops)
        self._display.advance_to(step)
        seconds = self._stopwatch.seconds
        if not self._has_told_speed and seconds > _SECONDS_WITHOUT_A_WORD:
            self._has_told_speed = True
            self._display.show_time_left(step, self._stopwatch.seconds_left(step, seconds))

    def count_compiled_step(self, step: int, seconds_compiling: float, seconds: float) -> None:
        """As `count_step`, for a step that compiled first: its seconds are left out of the speeds."""
        if step == self._first_step + 1:
            self._stopwatch.begin()
            seconds_compiling += self._seconds_compiled
            if self._began is not None:
                start = time.perf_counter() - self._began
                print(
                    f"first step after {start:.1f} s, {seconds_compiling:.1f} s of them compiling", flush=True
                )
                self._stopwatch.note("seconds_to_first_step", start)
        else:
            self._stopwatch.exclude(seconds)
        self._stopwatch.note("seconds_compiling", seconds_compiling)
        self._display.advance_to(step)

    def exclude(self, seconds: float) -> None:
        """Leaves out of the speeds seconds in which no step was under way."""
        self._stopwatch.exclude(seconds)

    def note_saving(self, seconds: float) -> None:
        """Adds the seconds for which training stood still to save a checkpoint."""
        self._stopwatch.note("seconds_saving", seconds)

    def training_row(
        self, step: int, sums: Sums, learning_rate: float, max_seq_length: int, seconds_waited: float
    ) -> None:
        """Writes the means over the steps since the last such row.

        Args:
          sums: what these steps added up, on the devices.
          learning_rate: that of the last of them.
          max_seq_length: of its batch.
          seconds_waited: how long the devices of this process had no batch.
        """
        totals = {name: float(value) for name, value in jax.device_get(sums).items()}
        sequences, tokens = (totals[name] / totals["steps"] for name in ("examples", "tokens"))
        # All processes go at the pace of the one that waits longest.
        waited, slowest = processes.all_reduce_max(seconds_waited)
        timing = self._stopwatch.lap(step, sequences, tokens, waited)
        self._has_told_speed = True
        if processes.count() > 1:
            timing["waiting_process"] = slowest
        means = self._task.means(totals) | {"grad_norm": totals["grad_norm"] / totals["steps"]}
        where = {"step": step, "split": "train", "max_seq_length": max_seq_length}
        self._write({**where, **means, "learning_rate": learning_rate, "timing": timing})

    def evaluating(self) -> AbstractContextManager[None]:
        """What an evaluation runs in, so that the live line says so."""
        return self._display.evaluating()

    def evaluation_row(self, step: int, metrics: Mapping[str, Any], seconds: float) -> None:
        """Writes the metrics of an evaluation, whose seconds are left out of the speeds and of the start."""
        self._write({"step": step, "split": "heldout", **metrics, "timing": {"seconds": seconds}})
        self._stopwatch.exclude(seconds)
        if self._began is not None:
            self._began += seconds

    def sync(self) -> None:
        """Makes the rows so far survive a power cut, so that a saved checkpoint has the rows of its steps."""
        if self._rows:
            self._rows.sync()

    def close(self) -> None:
        self._display.close()
        if self._rows:
            self._rows.close()

    def _write(self, row: dict[str, Any]) -> None:
        if self._rows:
            self._rows.write(row)
        self._display.show(row)
