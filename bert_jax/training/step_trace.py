"""A recording of a few steps by jax's profiler, for XProf (TensorBoard's "profile") and Perfetto."""

import time
from pathlib import Path

import jax

# Steps skipped after a start: the first compiles, and the second is still slowed by that.
_STEPS_BEFORE = 2


class StepTrace:
    """Records a number of steps, beginning with the third step after a start, until it is closed."""

    def __init__(self, directory: Path, first_step: int, count: int) -> None:
        """
        Args:
          directory: where recordings go.
          first_step: steps done before this start.
          count: steps to record; with 0 this does nothing.
        """
        self._directory = directory
        self._count = count
        self._begin = first_step + _STEPS_BEFORE
        self._end = self._begin + count
        self._step = first_step

    def between_steps(self, step: int, newest: jax.Array) -> float:
        """Begins or ends the recording if that is due.

        Args:
          newest: an array that is ready once these steps are done.

        Returns:
          Seconds spent on it, which belong to no step.
        """
        self._step = step
        if not self._count or step not in (self._begin, self._end):
            return 0.0
        jax.block_until_ready(newest)
        began = time.perf_counter()
        if step == self._begin:
            jax.profiler.start_trace(self._directory)
        else:
            self._finish()
        return time.perf_counter() - began

    def close(self) -> None:
        """Ends a recording that the end of the run cuts short; says so if none was begun."""
        if not self._count:
            return
        if self._step < self._begin:
            print("note: the run ended before there was a step to record", flush=True)
        elif self._step < self._end:
            self._step += 1  # the step that followed
            self._finish()

    def _finish(self) -> None:
        jax.profiler.stop_trace()
        recording = max((self._directory / "plugins" / "profile").iterdir())
        print(
            f"recorded steps {self._begin + 1} to {self._step} in {recording}; see them in TensorBoard "
            f"(pip install xprof), or open its trace.json.gz on https://ui.perfetto.dev",
            flush=True,
        )
