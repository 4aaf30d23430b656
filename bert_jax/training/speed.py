"""How fast a run goes: sequences, tokens and FLOP/s since the last row, and the time left."""

import time
from collections.abc import Callable

import jax

from bert_jax.training.accounting import peak_flops


class Stopwatch:
    """Measures the time between rows of metrics; `exclude` leaves out evaluations and compilations."""

    def __init__(self, devices: list[jax.Device], work_left: Callable[[int], float]) -> None:
        """
        Args:
          devices: all devices of the run.
          work_left: steps done -> remaining work, in any unit.
        """
        self._devices = devices
        self._work_left = work_left
        self._restart()

    def begin(self) -> None:
        """Begins measuring now; leaves out the time in which a start opens files and awaits a batch."""
        self._began = time.perf_counter()

    def count(self, flops: int) -> None:
        """Counts one step and its FLOPs; not called for steps whose time is excluded."""
        self._steps += 1
        self._flops += flops

    def note(self, name: str, seconds: float) -> None:
        """Adds seconds under this name to the next row."""
        self._noted[name] = self._noted.get(name, 0.0) + seconds

    def exclude(self, seconds: float) -> None:
        """Leaves out of the next row seconds that were not spent on counted steps."""
        self._began += seconds

    @property
    def seconds(self) -> float:
        """Since the last lap, without what was excluded."""
        return time.perf_counter() - self._began

    def seconds_left(self, step: int, seconds: float) -> float | None:
        """What the work after `step` takes, if the steps counted since the last lap took `seconds`.

        None if no work was counted.
        """
        left = self._work_left(step)
        done = self._work_left(step - self._steps) - left
        return left * seconds / done if done else None

    def lap(
        self, step: int, sequences_per_step: float, tokens_per_step: float, seconds_waited: float
    ) -> dict[str, float | None]:
        """Returns times and rates of the steps counted since the last lap, and starts the next lap.

        Args:
          sequences_per_step: real sequences in a step; a packed row holds several.
          tokens_per_step: real tokens in a step, padding not counted.
          seconds_waited: how long the devices had no batch.

        Returns:
          Seconds, what was noted and, if any step was counted, rates.
        """
        seconds, steps, noted = self.seconds, self._steps, self._noted
        left = self.seconds_left(step, seconds)
        # With features from disk, what is left of a model is a head, whose FLOPs are not counted.
        flops_per_second = self._flops / seconds if self._flops else None
        self._restart()
        if not steps:
            return {"seconds": seconds, **noted}
        peak = peak_flops(self._devices[0].device_kind)
        return {
            "seconds": seconds,
            **noted,
            "sequences_per_second": steps * sequences_per_step / seconds,
            "tokens_per_second": steps * tokens_per_step / seconds,
            "model_flops_per_second": flops_per_second,
            "fraction_of_peak": flops_per_second / (peak * len(self._devices))
            if peak and flops_per_second
            else None,
            "waiting_for_data": min(seconds_waited / seconds, 1.0),
            "seconds_left": left,
        }

    def _restart(self) -> None:
        self.begin()
        self._steps, self._flops = 0, 0
        self._noted = {"seconds_saving": 0.0}
