"""The training loop: steps, rows of metrics, evaluations, checkpoints, and how it ends.

Everything that decides the result is in the state and the step number, so the loop may be killed
at any point and started again.
"""

import collections
import dataclasses
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from bert_jax.parallel import processes
from bert_jax.parallel.interrupt import Interrupt
from bert_jax.task import Batch
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.metric_log import open_log
from bert_jax.training.nonfinite import report_nonfinite
from bert_jax.training.optimizer import make_schedule
from bert_jax.training.prefetch import Prefetch
from bert_jax.training.program import Program
from bert_jax.training.progress import ProgressDisplay
from bert_jax.training.retention import Kept
from bert_jax.training.speed import StartClock, Stopwatch
from bert_jax.training.step_trace import StepTrace
from bert_jax.training.train_step import Params, TrainState

HostBatches: TypeAlias = Iterator[Mapping[str, np.ndarray]]

Evaluation: TypeAlias = Callable[[Params, int], Mapping[str, Any]]
"""(parameters on the devices, steps done) -> figures for a row of metrics."""

# Steps that the host may be ahead of the devices: enough to keep them busy, few enough that a
# request to stop is answered at once.
_STEPS_AHEAD = 4


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Where batches come from."""

    training: Callable[[int], HostBatches]
    """First step -> the batches of that step and all later ones, or this process's rows of them; a
    pure function."""
    identity: Mapping[str, Any]
    """What determines the batches: seed, corpus, fingerprint; saved with a batch that gives NaN."""
    work_left: Callable[[int], float] | None = None
    """Steps done -> work of the remaining batches, in any unit; None: all steps are equal work."""


class Ending(enum.Enum):
    """Why `TrainingRun.train` returned."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclasses.dataclass(kw_only=True, eq=False)
class TrainingRun:
    """One start of a run: what it trains, where, and what it does beside; `train` is called once."""

    program: Program
    """The compiled task."""
    data: TrainingData
    """Its batches."""
    workdir: Path
    """Where checkpoints, `metrics.jsonl` and TensorBoard curves go."""
    say: Callable[[str], None]
    """Prints one line."""
    evaluation: Evaluation | None = None
    """Measures held-out data every `eval_every` steps; None for no evaluation."""
    start: Callable[[], TrainState] | None = None
    """Makes the state at step 0; None: `program.init`."""
    evaluate_start: bool = False
    """Whether to evaluate that state, before the first step."""
    clock: StartClock | None = None
    """Runs since the command began, and is stopped when its first step is done."""
    trace: StepTrace | None = None
    """Records some steps with jax's profiler; None in all processes but one."""
    before_save: Callable[[], None] = lambda: None
    """Called in all processes before any part of a checkpoint is written; an exception ends the run."""
    kept: Kept | None = None
    """Which checkpoints to keep; None: as `program.run` says."""

    def __post_init__(self) -> None:
        self.config = self.program.run
        self.shapes_compiled: set[tuple[int, ...]] = set()
        self.max_seq_length = 0
        self.rate = make_schedule(self.config.optimizer, self.config.num_train_steps)
        self.stopwatch = Stopwatch(
            self.program.devices, self.data.work_left or (lambda step: self.config.num_train_steps - step)
        )
        self.seconds_of_last_save = 0.0

    def train(self, interrupt: Interrupt) -> Ending:
        """Trains to the last step, from the newest checkpoint in `workdir` or from the beginning.

        Args:
          interrupt: asked after every step whether to save and stop.

        Raises:
          NonFiniteError: NaN or infinity; the batch is saved, and no later checkpoint is.
          Unfinished: a checkpoint cannot be written or read.
          UserError: there are checkpoints, and all of them are damaged.
        """
        kept = self.kept or Kept.asked_for_by(self.config)
        self.checkpoints = Checkpoints(self.workdir, kept.newest, self.say, kept.every)
        try:
            ending = self._train_from(self._first_state(), interrupt)
            if ending is Ending.INTERRUPTED:
                self.say(f"the last checkpoint took {self.seconds_of_last_save:.1f} s to save")
            return ending
        finally:
            self.checkpoints.close()

    def _first_state(self) -> TrainState:
        """The state of the newest checkpoint, or the one at step 0."""
        state = self.checkpoints.restore_newest(self.program.abstract_state())
        if state is None:
            return (self.start or self.program.init)()
        self.say(f"resuming from step {int(state.step)} of {self.config.num_train_steps}")
        return state

    def _train_from(self, state: TrainState, interrupt: Interrupt) -> Ending:
        """Runs steps to the last one or a request to stop; logs, evaluates and saves between them."""
        last = self.config.num_train_steps
        step = self.first_step = int(state.step)
        # At step 0 nothing is kept: an earlier start may have evaluated another model or corpus there.
        self.log = open_log(self.workdir, step or -1)
        self.display = ProgressDisplay(step, last)
        under_way: collections.deque[jax.Array] = collections.deque()
        batches = Prefetch(self.data.training(step), self.program.put)
        if self.trace:
            self.trace.start_at(step)
        try:
            with self.display:
                self._make_up_evaluation(state, step)
                while step < last:
                    if self.trace:
                        self.stopwatch.exclude(self.trace.between_steps(step, state.step))
                    batch = batches.next(state.step)
                    if step == self.first_step:
                        batches.seconds_waited = 0.0  # part of the start, not of the first row
                    state = self._advance(state, batch, step)
                    step += 1
                    # A copy, because the next step is donated the state's own arrays.
                    under_way.append(state.step + 0)
                    if len(under_way) > _STEPS_AHEAD:
                        under_way.popleft().block_until_ready()
                    self.display.advance_to(step)
                    stopping = interrupt.requested_after(step - self.first_step)
                    state = self._between_steps(state, step, batches, stopping=stopping)
                    if stopping and step < last:
                        return Ending.INTERRUPTED
                return Ending.FINISHED
        finally:
            batches.close()
            self.log.close()
            if self.trace:
                self.trace.close(step)

    def _advance(self, state: TrainState, batch: Batch, step: int) -> TrainState:
        """Runs one step. The first step of each shape compiles and is left out of the reported speeds."""
        shape = batch["input_ids"].shape
        self.max_seq_length = shape[-1]
        if shape in self.shapes_compiled:
            self.stopwatch.count(self.program.flops(batch))
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                return self.program.train_step(state, batch, self.rate(step))
        self.shapes_compiled.add(shape)
        jax.block_until_ready(state.step)
        began = time.perf_counter()
        state = self.program.train_step(state, batch, self.rate(step))
        compiled = time.perf_counter()  # the call returns when the step is under way
        jax.block_until_ready(state.step)
        self.stopwatch.exclude(time.perf_counter() - began)
        if step == self.first_step:
            self.stopwatch.begin()
        if self.clock and step == self.first_step:
            self.clock.compiled(compiled - began)
            self.clock.stop(self.stopwatch)
        return state

    def _make_up_evaluation(self, state: TrainState, step: int) -> None:
        """Evaluates at the step that a run resumes from, or at its start, if that was not done before."""
        is_due = self._is_due(step, self.config.eval_every) if step else self.evaluate_start
        if not self.evaluation or not is_due:
            return
        if processes.by_first(lambda: self.log.evaluated_at) != step:
            self._log_evaluation(self.evaluation, state, step)

    def _between_steps(
        self, state: TrainState, step: int, batches: Prefetch, *, stopping: bool
    ) -> TrainState:
        """Does what is due after a step, always in this order: row of metrics, checkpoint, evaluation.

        The checkpoint is written while the evaluation runs, and is not lost if the evaluation fails. A stop
        may leave only seconds, so the evaluation is then left to the next start.
        """
        is_last = step == self.config.num_train_steps
        stopping = stopping and not is_last
        self.checkpoints.check()
        if self._is_due(step, self.config.log_every):
            self._check_finite(state)
            self._log_training(state, step, batches)
            state = self.program.reset_sums(state)
        saving = self._start_saving(state, step, stopping)
        if self.evaluation and self._is_due(step, self.config.eval_every) and not stopping:
            self._check_finite(state)
            self._log_evaluation(self.evaluation, state, step)
        if stopping or is_last:
            began = time.perf_counter()
            self.checkpoints.wait()
            self.seconds_of_last_save = saving + time.perf_counter() - began
        return state

    def _start_saving(self, state: TrainState, step: int, stopping: bool) -> float:
        """Starts to save the checkpoint of a step, if it is due; returns the seconds that the loop waited."""
        # An earlier start's `keep_every` need not be a multiple of this start's `checkpoint_every`.
        is_due = self._is_due(step, self.config.checkpoint_every) or self.checkpoints.stays(step)
        if not (is_due or stopping):
            return 0.0
        began = time.perf_counter()
        self._check_finite(state)
        self.before_save()
        self.log.sync()
        self.checkpoints.save(step, state)
        seconds = time.perf_counter() - began
        self.stopwatch.note("seconds_saving", seconds)
        return seconds

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.config.num_train_steps

    def _log_training(self, state: TrainState, step: int, batches: Prefetch) -> None:
        sums = {name: float(value) for name, value in jax.device_get(state.sums).items()}
        sequences, tokens = (sums[name] / sums["steps"] for name in ("examples", "tokens"))
        # All processes go at the pace of the one that waits longest.
        waited, slowest = processes.highest(batches.seconds_waited)
        batches.seconds_waited = 0.0
        timing = self.stopwatch.lap(step, sequences, tokens, waited)
        if processes.count() > 1:
            timing["waiting_process"] = slowest
        self._write(
            {
                "step": step,
                "split": "train",
                "max_seq_length": self.max_seq_length,
                **self.program.task.means(sums),
                "grad_norm": sums["grad_norm"] / sums["steps"],
                "learning_rate": float(self.rate(step - 1)),
                "timing": timing,
            }
        )

    def _log_evaluation(self, evaluation: Evaluation, state: TrainState, step: int) -> None:
        jax.block_until_ready(state.step)
        began = time.perf_counter()
        figures = evaluation(state.params, step)
        seconds = time.perf_counter() - began
        self._write({"step": step, "split": "heldout", **figures, "timing": {"seconds": seconds}})
        self.stopwatch.exclude(seconds)
        if self.clock:
            self.clock.exclude(seconds)

    def _write(self, row: dict[str, Any]) -> None:
        self.log.write(row)
        self.display.show(row)

    def _check_finite(self, state: TrainState) -> None:
        bad = int(state.first_nonfinite_step)
        if bad >= 0:
            batch = next(self.data.training(bad))
            raise report_nonfinite(self.workdir, bad, batch, self.data.identity)
