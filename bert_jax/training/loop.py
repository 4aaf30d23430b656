"""The training loop: steps, rows of metrics, evaluations, checkpoints, and how it ends.

Everything that decides the result is in the state and the step number, so the loop may be killed
at any point and started again.
"""

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from bert_jax.parallel import processes
from bert_jax.parallel.interrupt import Interrupt, Interrupted
from bert_jax.parallel.watchdog import Watchdog, watch
from bert_jax.retention import Kept
from bert_jax.task import Batch, Sums, Task
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.log import TrainingLog
from bert_jax.training.metric_log import TENSORBOARD_DIRECTORY
from bert_jax.training.nonfinite import report_nonfinite
from bert_jax.training.optimizer import make_schedule
from bert_jax.training.prefetch import Prefetch
from bert_jax.training.program import Program
from bert_jax.training.step_trace import StepTrace
from bert_jax.training.train_step import Params, TrainState

HostBatches: TypeAlias = Iterator[Mapping[str, np.ndarray]]

Evaluation: TypeAlias = Callable[[Params, int, Callable[[], None]], Mapping[str, Any]]
"""(parameters on the devices, steps done, what to call after each batch) -> metrics for a row.

What is called raises Interrupted if the run was asked to stop."""

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


def train(
    program: Program,
    data: TrainingData,
    workdir: Path,
    interrupt: Interrupt,
    *,
    evaluation: Evaluation | None = None,
    start: Callable[[], TrainState] | None = None,
    evaluate_start: bool = False,
    began: float | None = None,
    seconds_compiled: float = 0.0,
    profile_steps: int = 0,
    before_save: Callable[[], None] = lambda: None,
    kept: Kept | None = None,
) -> None:
    """Trains to the last step, from the newest checkpoint in `workdir` or from the beginning.

    What is due after a step is done in this order: row of metrics, checkpoint, evaluation. The checkpoint is
    written while the evaluation runs, and is not lost if the evaluation fails. After a signal the process may
    be killed within seconds, so an evaluation that is due or under way is left to the next start.

    Args:
      program: the compiled task.
      data: its batches.
      workdir: where checkpoints, `metrics.jsonl` and TensorBoard curves go.
      interrupt: asked after every step, and after every batch of an evaluation, whether to save and stop.
      evaluation: measures held-out data every `eval_every` steps; None for no evaluation.
      start: makes the state at step 0; None: `program.init`.
      evaluate_start: whether to evaluate that state, before the first step.
      began: when the command began, on the clock of `time.perf_counter`, to say how long its first step took;
        None: nothing is said.
      seconds_compiled: how long it has compiled since.
      profile_steps: how many steps jax's profiler records, in process 0.
      before_save: called in all processes before any part of a checkpoint is written; an exception ends the
        run.
      kept: which checkpoints to keep; None: as `program.run` says.

    Raises:
      Interrupted: the run was asked to stop, and the steps that it has done are saved.
      NonFiniteError: NaN or infinity; the batch is saved, and no later checkpoint is.
      Unfinished: a checkpoint cannot be written or read.
      UserError: there are checkpoints, and all of them are damaged, or hold other arrays than the state.
    """
    run, last = program.run, program.run.num_train_steps
    rate = make_schedule(run.optimizer, last)
    kept = kept or Kept.asked_for_by(run)
    with contextlib.closing(Checkpoints(workdir, kept)) as checkpoints:
        state = checkpoints.restore_newest(program.abstract_state())
        if state is None:
            state = (start or program.init)()
        else:
            print(f"resuming from step {int(state.step)} of {last}", flush=True)
        first = int(state.step)
        work_left = data.work_left or (lambda step: last - step)
        num_recorded = profile_steps if processes.is_first() else 0
        with (
            contextlib.closing(StepTrace(workdir / TENSORBOARD_DIRECTORY, first, num_recorded)) as trace,
            contextlib.closing(
                TrainingLog(workdir, program, first, work_left, began, seconds_compiled)
            ) as log,
            contextlib.closing(Prefetch(data.training(first), program.put)) as batches,
            watch(first) as watchdog,
        ):
            # The evaluation that a stop left out, or that of the start.
            was_due = _is_due(first, run.eval_every, last) if first else evaluate_start
            if evaluation and was_due and not log.evaluated_at(first):
                _evaluate(evaluation, state, first, log, watchdog, interrupt)

            shapes_compiled: set[tuple[tuple[int, ...], ...]] = set()
            under_way: collections.deque[jax.Array] = collections.deque()
            for step in range(first + 1, last + 1):
                log.exclude(trace.between_steps(step - 1, state.step))
                batch = batches.next(state.step)
                if step == first + 1:
                    batches.take_seconds_waited()  # part of the start, not of the first row
                shapes = tuple(array.shape for array in batch.values())
                if shapes in shapes_compiled:
                    with jax.profiler.StepTraceAnnotation("train", step_num=step - 1):
                        state = program.train_step(state, batch, rate(step - 1))
                    log.count_step(step, program.flops(batch))
                else:
                    shapes_compiled.add(shapes)
                    state = _compile_and_step(program, state, batch, rate(step - 1), step, log)
                # A copy, because the next step is donated the state's own arrays.
                under_way.append(state.step + 0)
                if len(under_way) > _STEPS_AHEAD:
                    under_way.popleft().block_until_ready()
                watchdog.report(step)

                stopping = interrupt.requested() and step < last
                logs = _is_due(step, run.log_every, last)
                saves = stopping or _is_due(step, run.checkpoint_every, last) or kept.in_series(step)
                evaluates = _is_due(step, run.eval_every, last) and not stopping
                checkpoints.check()
                if logs or saves or (evaluation and evaluates):
                    _check_finite(state, data, workdir)
                if logs:
                    waited = batches.take_seconds_waited()
                    length = batch["input_ids"].shape[-1]
                    log.training_row(step, state.sums, float(rate(step - 1)), length, waited)
                    state = program.reset_sums(state)
                saving_began = time.perf_counter()
                if saves:
                    _save(checkpoints, step, state, log, before_save)
                if evaluation and evaluates:
                    try:
                        _evaluate(evaluation, state, step, log, watchdog, interrupt)
                    except Interrupted:
                        stopping, saving_began = True, time.perf_counter()
                        if not saves:
                            _save(checkpoints, step, state, log, before_save)
                if stopping:
                    checkpoints.wait()
                    seconds = time.perf_counter() - saving_began
                    print(f"the last checkpoint took {seconds:.1f} s to save", flush=True)
                    raise Interrupted
            checkpoints.wait()  # here, so that a save that never ends is noticed as a step would be


def _is_due(step: int, every: int, last: int) -> bool:
    return step % every == 0 or step == last


def _compile_and_step(
    program: Program, state: TrainState, batch: Batch, rate: np.float32, step: int, log: TrainingLog
) -> TrainState:
    """Runs the first step of new shapes, which compiles; waits, so that its time can be told from others'."""
    jax.block_until_ready(state.step)
    began = time.perf_counter()
    if program.run.parallel.mode == "jit" and processes.count() > 1:
        program.lower_train_step(batch).compile()  # kept until the step is called
        processes.barrier()
    state = program.train_step(state, batch, rate)
    compiled = time.perf_counter()  # the call returns when the step is under way
    jax.block_until_ready(state.step)
    log.count_compiled_step(step, compiled - began, time.perf_counter() - began)
    if step == 1:
        _compare_losses(program.task, state.sums)
    return state


def _compare_losses(task: Task, sums: Sums) -> None:
    """Notes if a task's metrics show another loss than training minimizes; `sums` are those of one batch."""
    sums = jax.device_get(sums)
    minimized = float(task.loss(sums, sums))
    shown = task.means({name: float(value) for name, value in sums.items()})["loss"]
    if abs(minimized - shown) > 1e-3 * max(1.0, abs(minimized)) and processes.is_first():
        print(
            f"note: for the first batch loss() is {minimized:.4g}, which training minimizes, and the loss of "
            f"means() is {shown:.4g}, which metrics show",
            flush=True,
        )


def _save(
    checkpoints: Checkpoints, step: int, state: TrainState, log: TrainingLog, before_save: Callable[[], None]
) -> None:
    began = time.perf_counter()
    before_save()
    log.sync()
    checkpoints.save(step, state)
    log.note_saving(time.perf_counter() - began)


def _evaluate(
    evaluation: Evaluation,
    state: TrainState,
    step: int,
    log: TrainingLog,
    watchdog: Watchdog,
    interrupt: Interrupt,
) -> None:
    """Evaluates and writes a row. Raises Interrupted, without a row, if it is asked to stop."""
    jax.block_until_ready(state.step)
    began = time.perf_counter()
    with watchdog.paused(), log.evaluating():
        metrics = evaluation(state.params, step, interrupt.check)
    log.evaluation_row(step, metrics, time.perf_counter() - began)


def _check_finite(state: TrainState, data: TrainingData, workdir: Path) -> None:
    bad = int(state.first_nonfinite_step)
    if bad >= 0:
        raise report_nonfinite(workdir, bad, next(data.training(bad)), data.identity)
