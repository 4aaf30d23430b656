"""How fast a run goes: sequences, tokens and FLOP/s since the last row, and the time left."""

import time
from collections.abc import Callable

import jax

from bert_jax.training.accounting import peak_flops


class StartClock:
    """How long a start takes until its first step is done, and how much of that is compiling."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begins now; `say` prints one line."""
        self._say = say
        self._began = time.perf_counter()
        self._compiling = 0.0

    def compiled(self, seconds: float) -> None:
        """Adds seconds that were spent on compiling."""
        self._compiling += seconds

    def stop(self, stopwatch: "Stopwatch") -> None:
        """The first step is done: says so, and notes both figures for the first row."""
        seconds = time.perf_counter() - self._began
        self._say(f"first step after {seconds:.1f} s, {self._compiling:.1f} s of them compiling")
        stopwatch.note("seconds_to_first_step", seconds)
        stopwatch.note("seconds_compiling", self._compiling)


class Stopwatch:
    """Measures the stretches between rows; `exclude` leaves evaluations and compilations out."""

    def __init__(self, devices: list[jax.Device], work_left: Callable[[int], float]) -> None:
        """
        Args:
          devices: those that compute.
          work_left: steps done -> the work still to come, in any unit.
        """
        self._devices = devices
        self._work_left = work_left
        self._restart()

    def begin(self) -> None:
        """Leaves out all the time until now: a start opens files and awaits its first batch."""
        self._began = time.perf_counter()

    def count(self, flops: int) -> None:
        """Counts one step, unless its time is excluded."""
        self._steps += 1
        self._flops += flops

    def note(self, name: str, seconds: float) -> None:
        """Adds seconds to a figure of the next row."""
        self._noted[name] = self._noted.get(name, 0.0) + seconds

    def exclude(self, seconds: float) -> None:
        """Leaves seconds that were not spent on counted steps out of the next row."""
        self._began += seconds

    def lap(
        self, step: int, sequences_per_step: float, tokens_per_step: float, seconds_waited: float
    ) -> dict[str, float | None]:
        """Figures of the steps counted since the last lap, and starts the next.

        Args:
          step: steps done so far.
          sequences_per_step: real sequences in one of them; a packed row holds several.
          tokens_per_step: real tokens in one of them, padding not counted.
          seconds_waited: how long the devices had no batch.

        Returns:
          What was noted, and rates, of which there are none if no step was counted.
        """
        seconds, steps, noted = time.perf_counter() - self._began, self._steps, self._noted
        flops_per_second = self._flops / max(seconds, 1e-9)
        self._restart()
        if not steps:
            return {"seconds": seconds, **noted}
        peak = peak_flops(self._devices[0].device_kind)
        left = self._work_left(step)
        return {
            "seconds": seconds,
            **noted,
            "sequences_per_second": steps * sequences_per_step / seconds,
            "tokens_per_second": steps * tokens_per_step / seconds,
            "model_flops_per_second": flops_per_second,
            "share_of_peak": flops_per_second / (peak * len(self._devices)) if peak else None,
            "waiting_for_data": min(seconds_waited / seconds, 1.0),
            "seconds_left": left * seconds / (self._work_left(step - steps) - left),
        }

    def _restart(self) -> None:
        self.begin()
        self._steps, self._flops = 0, 0
        self._noted: dict[str, float] = {"seconds_saving": 0.0}
