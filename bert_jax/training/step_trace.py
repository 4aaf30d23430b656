"""A recording of a few steps by jax's profiler, for XProf (TensorBoard's "profile") and Perfetto."""

import time
from collections.abc import Callable
from pathlib import Path

import jax

# Steps skipped after a start: the first compiles, and the second is still slowed by that.
_STEPS_BEFORE = 2


class StepTrace:
    """Records a number of steps, beginning with the third step after a start."""

    def __init__(self, folder: Path, count: int, say: Callable[[str], None]) -> None:
        """
        Args:
          folder: where recordings go.
          count: steps to record.
          say: prints one line.
        """
        self._folder = folder
        self._count = count
        self._say = say

    def start_at(self, first_step: int) -> None:
        """Sets the step that training starts or resumes at; called before all else."""
        self._begin = first_step + _STEPS_BEFORE
        self._end = self._begin + self._count
        self._step = first_step

    def between_steps(self, step: int, newest: jax.Array) -> float:
        """Begins or ends the recording if that is due.

        Args:
          step: steps done.
          newest: an array that is ready once these steps are done.

        Returns:
          Seconds spent on it, which belong to no step.
        """
        self._step = step
        if step not in (self._begin, self._end):
            return 0.0
        jax.block_until_ready(newest)
        began = time.perf_counter()
        if step == self._begin:
            jax.profiler.start_trace(self._folder)
        else:
            self._finish()
        return time.perf_counter() - began

    def close(self, step: int) -> None:
        """Ends a recording that the end of the run cuts short; says so if none was begun."""
        if self._step < self._begin:
            self._say("note: the run ended before there was a step to record")
        elif self._step < self._end:
            self._step = step
            self._finish()

    def _finish(self) -> None:
        jax.profiler.stop_trace()
        recording = max((self._folder / "plugins" / "profile").iterdir())
        self._say(
            f"recorded steps {self._begin + 1} to {self._step} in {recording}; see them in TensorBoard "
            f"(pip install xprof), or open its trace.json.gz on https://ui.perfetto.dev"
        )
