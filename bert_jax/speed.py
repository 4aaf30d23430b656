"""How fast a run goes: sequences, tokens and FLOP/s since the last row, and the time left."""

import time

import jax

from bert_jax.accounting import flops_per_sequence, peak_flops
from bert_jax.config import Experiment
from data_pipeline.config import Phase


class Stopwatch:
    """Measures the stretches between rows; `exclude` leaves evaluations and compilations out."""

    def __init__(self, experiment: Experiment, devices: list[jax.Device], step: int) -> None:
        self._experiment = experiment
        self._devices = devices
        self._began = time.perf_counter()
        self._step = step

    def restart(self, step: int) -> None:
        """Forgets the steps so far: they compiled."""
        self._began, self._step = time.perf_counter(), step

    def exclude(self, seconds: float) -> None:
        """Leaves seconds that were not spent on steps out of the next row."""
        self._began += seconds

    def lap(
        self, step: int, phase: Phase, tokens_per_step: float, seconds_waited: float
    ) -> dict[str, float | None]:
        """Figures of the steps since the last lap, and starts the next.

        Args:
          step: steps done so far.
          phase: the phase these steps were in.
          tokens_per_step: real tokens in one of them, padding not counted.
          seconds_waited: how long the devices had no batch.
        """
        now = time.perf_counter()
        seconds = max(now - self._began, 1e-9)
        steps = step - self._step
        sequences = steps * self._experiment.global_batch_size
        flops = sequences * flops_per_sequence(self._experiment.model, phase) / seconds
        peak = peak_flops(self._devices[0].device_kind)
        left = (self._experiment.num_train_steps - step) * seconds / max(steps, 1)
        self._began, self._step = now, step
        return {
            "seconds": seconds,
            "sequences_per_second": sequences / seconds,
            "tokens_per_second": steps * tokens_per_step / seconds,
            "model_flops_per_second": flops,
            "share_of_peak": flops / (peak * len(self._devices)) if peak else None,
            "waiting_for_data": min(seconds_waited / seconds, 1.0),
            "seconds_left": left,
        }
