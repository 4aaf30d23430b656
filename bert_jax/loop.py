"""The training loop: steps, rows of metrics, evaluations, checkpoints, and how it ends.

Everything that decides the result is in the state and the step number, so the loop may be killed
anywhere and started again.
"""

import collections
import dataclasses
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints import Checkpoints
from bert_jax.evaluation import evaluate
from bert_jax.interrupt import Interrupt
from bert_jax.metric_log import MetricLog
from bert_jax.metrics import means
from bert_jax.nonfinite import report_nonfinite
from bert_jax.optimizer import learning_rate
from bert_jax.parallel import Program
from bert_jax.prefetch import Prefetch
from bert_jax.progress import ProgressDisplay
from bert_jax.speed import Stopwatch
from bert_jax.train_step import TrainState
from data_pipeline.config import Phase, phase_ends

HostBatches = Iterator[Mapping[str, np.ndarray]]

# Steps that the host may be ahead of the devices: enough to keep them busy, few enough that a
# request to stop is answered at once.
_STEPS_AHEAD = 4


@dataclasses.dataclass(frozen=True)
class Data:
    """Where batches come from; both are pure functions of their argument."""

    training: Callable[[int], HostBatches]
    """First step -> the batches of that step and all later ones."""
    evaluation: Callable[[Phase], HostBatches] | None
    """Phase -> the held-out batches at its sequence length; None if no documents are held out."""
    identity: Mapping[str, Any]
    """What the batches are a function of, for the record: seed, corpus, fingerprint."""


class Ending(enum.Enum):
    """Why `train` returned."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


def train(
    program: Program,
    data: Data,
    workdir: Path,
    *,
    interrupt: Interrupt,
    say: Callable[[str], None],
) -> Ending:
    """Trains to the last step, from the newest checkpoint in `workdir` or from the beginning.

    Args:
      program: compiled experiment.
      data: its batches.
      workdir: where checkpoints, `metrics.jsonl` and TensorBoard curves go.
      interrupt: asked after every step whether to save and stop.
      say: prints one line.

    Raises:
      NonFiniteError: NaN or infinity; the batch is saved, and no later checkpoint is.
      UserError: a checkpoint cannot be written, or none can be read.
    """
    checkpoints = Checkpoints(workdir, program.experiment.keep_checkpoints, say)
    try:
        state = checkpoints.restore_newest(program.abstract_state())
        if state is None:
            state = program.init()
        else:
            say(f"going on from step {int(state.step)} of {program.experiment.num_train_steps}")
        return _Run(program, data, workdir, checkpoints, int(state.step)).train(state, interrupt)
    finally:
        checkpoints.close()


class _Run:
    """What the steps of one stretch of training share."""

    def __init__(
        self, program: Program, data: Data, workdir: Path, checkpoints: Checkpoints, first_step: int
    ) -> None:
        self.program = program
        self.experiment = program.experiment
        self.data = data
        self.workdir = workdir
        self.checkpoints = checkpoints
        self.first_step = first_step
        ends = phase_ends(self.experiment.data.phases, self.experiment.num_train_steps)
        self.compiling = {start + 1 for start in (first_step, *ends)}
        self.rate = learning_rate(self.experiment.optimizer, self.experiment.num_train_steps)
        self.stopwatch = Stopwatch(self.experiment, program.devices, first_step)
        self.log = MetricLog(workdir, first_step)
        self.display = ProgressDisplay(first_step, self.experiment.num_train_steps)

    def train(self, state: TrainState, interrupt: Interrupt) -> Ending:
        """The long loop."""
        last = self.experiment.num_train_steps
        step = self.first_step
        under_way: collections.deque[jax.Array] = collections.deque()
        batches = Prefetch(self.data.training(step), self.program.put)
        try:
            with self.display:
                while step < last:
                    batch = batches.next(state.step)
                    state = self.program.train_step(state, batch)
                    step += 1
                    if step in self.compiling:
                        jax.block_until_ready(state.step)
                        self.stopwatch.restart(step)
                        batches.seconds_waited = 0.0
                    # A copy, because the next step uses the state's own arrays up.
                    under_way.append(state.step + 0)
                    if len(under_way) > _STEPS_AHEAD:
                        under_way.popleft().block_until_ready()
                    self.display.advance_to(step)
                    stopping = interrupt.requested
                    state = self._between_steps(state, step, batches, stopping=stopping)
                    if stopping and step < last:
                        return Ending.INTERRUPTED
                return Ending.FINISHED
        finally:
            batches.close()
            self.log.close()

    def _between_steps(
        self, state: TrainState, step: int, batches: Prefetch, *, stopping: bool
    ) -> TrainState:
        """What is due after a step, always in this order: row, evaluation, checkpoint."""
        if self._is_due(step, self.experiment.log_every):
            self._check_finite(state)
            self._log_training(state, step, batches)
            state = self.program.reset_sums(state)
        if self.data.evaluation and self._is_due(step, self.experiment.eval_every):
            self._check_finite(state)
            self._log_evaluation(state, step, self.data.evaluation)
        if self._is_due(step, self.experiment.checkpoint_every) or stopping:
            self._check_finite(state)
            self.log.sync()
            self.checkpoints.save(step, state)
        if stopping or step == self.experiment.num_train_steps:
            self.checkpoints.wait()
        return state

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.experiment.num_train_steps

    def _phase(self, step: int) -> Phase:
        """The phase of the last step done."""
        phases = self.experiment.data.phases
        ends = phase_ends(phases, self.experiment.num_train_steps)
        return next(phase for phase, end in zip(phases, ends, strict=True) if step <= end)

    def _log_training(self, state: TrainState, step: int, batches: Prefetch) -> None:
        sums = jax.device_get(state.sums)
        phase = self._phase(step)
        tokens = float(sums["tokens"] / sums["steps"])
        timing = self.stopwatch.lap(step, phase, tokens, batches.seconds_waited)
        batches.seconds_waited = 0.0
        self._write(
            {
                "step": step,
                "split": "train",
                "max_seq_length": phase.max_seq_length,
                **means(sums, self.experiment.model.objective),
                "learning_rate": float(self.rate(step - 1)),
                "timing": timing,
            }
        )

    def _log_evaluation(
        self, state: TrainState, step: int, evaluation: Callable[[Phase], HostBatches]
    ) -> None:
        began = time.perf_counter()
        phase = self._phase(step)
        figures = evaluate(self.program, state.params, evaluation(phase))
        seconds = time.perf_counter() - began
        self._write(
            {
                "step": step,
                "split": "heldout",
                "max_seq_length": phase.max_seq_length,
                **figures,
                "timing": {"seconds": seconds},
            }
        )
        self.stopwatch.exclude(seconds)

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(row)
        self.display.show(row)

    def _check_finite(self, state: TrainState) -> None:
        bad = int(state.first_nonfinite_step)
        if bad >= 0:
            batch = next(self.data.training(bad))
            raise report_nonfinite(self.workdir, bad, batch, self.data.identity)
