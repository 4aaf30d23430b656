"""Held-out evaluation of pretraining: the same batches every time, summed exactly, divided once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel import processes
from bert_jax.training.loop import Evaluation, HostBatches
from bert_jax.training.program import Program
from bert_jax.training.train_step import Params
from data_pipeline.config import Phase
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import evaluation_batches

# Batches that the host may be ahead of the devices, which keeps them busy.
_BATCHES_AHEAD = 4


def heldout_batches(
    program: Program[PretrainingTask, Experiment], corpus: str
) -> Callable[[Phase], HostBatches]:
    """Phase -> the held-out batches at its sequence length, always the same; each process makes only the rows
    that it holds. `corpus` has held-out documents.
    """
    task, experiment = program.task, program.run

    def batches(phase: Phase) -> HostBatches:
        batch_size = experiment.largest_batch(phase) // experiment.parallel.accumulation_steps
        made = evaluation_batches(
            corpus,
            experiment.data,
            phase,
            batch_size=batch_size,
            examples=experiment.eval_examples,
            rows=program.rows.ranges(batch_size),
        )
        return map(task.select, made)

    return batches


def make_evaluation(program: Program[PretrainingTask, Experiment], corpus: str) -> Evaluation:
    """Returns the evaluation on a corpus's held-out documents, at the sequence length of the step's phase.

    Raises:
      UserError: a phase has no held-out batch; checked here, not days later when the phase begins.
    """
    experiment, heldout = program.run, heldout_batches(program, corpus)
    for phase in experiment.data.phases:
        heldout(phase)

    def evaluation(params: Params, step: int, after_batch: Callable[[], None]) -> dict[str, Any]:
        phase = phase_at(experiment, step)
        metrics = evaluate(program, params, heldout(phase), after_batch)
        return {"max_seq_length": phase.max_seq_length, **metrics}

    return evaluation


def phase_at(experiment: Experiment, step: int) -> Phase:
    """The phase that has made the parameters at a step, or at step 0 the first that will."""
    return next(s.phase for s in experiment.stretches if s.start < s.stop and step <= s.stop)


def evaluate(
    program: Program[PretrainingTask, Experiment],
    params: Params,
    batches: Iterable[Mapping[str, np.ndarray]],
    after_batch: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The objective's metrics, and for those that have one, the score of always guessing.

    Args:
      params: parameters on the devices.
      batches: held-out batches of equal shape, or this process's rows of them; padding rows do not count.
      after_batch: called after each of them; what it raises ends the evaluation.

    Raises:
      UserError: there is no batch, or nothing in it to predict.
    """
    task = program.task
    counts: dict[str, Any] = {}
    parts = []
    for batch in batches:
        for name, labels in label_counts(task, program.rows.counted_here(batch)).items():
            counts[name] = counts.get(name, 0) + labels
        parts.append(program.eval_step(params, program.put(batch)))
        if len(parts) > _BATCHES_AHEAD:  # so that little is under way when the evaluation is ended
            jax.block_until_ready(parts[-1 - _BATCHES_AHEAD])
        after_batch()
    # float64 on the host: thousands of float32 sums would lose digits.
    totals: dict[str, float] = {}
    for part in jax.device_get(parts):
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + float(value)
    counts = {name: processes.all_reduce_sum(labels) for name, labels in counts.items()}
    if not parts or not all(labels.any() for labels in counts.values()):
        raise UserError("the held-out documents give no token to predict; prepare with a larger --holdout")
    guessed = {
        metric.guess_name: float(counts[metric.name].max() / counts[metric.name].sum())
        for metric in task.metrics
        if metric.name in counts
    }
    return {**task.means(totals), **guessed, "examples": totals["examples"]}


def label_counts(task: PretrainingTask, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Metric -> int64 [vocab_size], how often each label occurs in a batch.

    The most frequent label is taken from the evaluated batches themselves, so always guessing it scores its
    best, a little above the most frequent token of the training text.
    """
    return {
        name: np.bincount(labels[is_counted], minlength=task.model.vocab_size)
        for name, (labels, is_counted) in task.objective.predicted(batch).items()
    }
