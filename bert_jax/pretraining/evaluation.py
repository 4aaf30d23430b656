"""Held-out evaluation of pretraining: the same batches every time, summed exactly, divided once."""

from collections.abc import Iterable, Mapping

import jax
import numpy as np

from bert_jax.pretraining.metrics import GuessCounter
from bert_jax.pretraining.task import PretrainingTask
from bert_jax.training.program import Program
from bert_jax.training.train_step import Params
from data_pipeline.errors import UserError


def evaluate(
    program: Program, params: Params, batches: Iterable[Mapping[str, np.ndarray]]
) -> dict[str, float]:
    """Metrics of `bert_jax.pretraining.metrics.means`, and the accuracies of guessing the same labels.

    Args:
      program: compiled pretraining task.
      params: parameters on the devices.
      batches: held-out batches of equal shape, or this process's rows of them; padding rows do not count.

    Raises:
      UserError: there is no batch, or nothing in it to predict.
    """
    task = program.task
    assert isinstance(task, PretrainingTask)
    guesses = GuessCounter(task.model.learns, task.model.vocab_size)
    parts = []
    for batch in batches:
        guesses.add(program.rows.counted_here(batch))
        parts.append(program.eval_step(params, program.put(batch)))
    # float64 on the host: thousands of float32 sums would lose digits.
    totals: dict[str, float] = {}
    for part in jax.device_get(parts):
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + float(value)
    if not totals.get("mlm_weight"):
        raise UserError("the held-out documents give no token to predict; prepare with a larger --holdout")
    return {**task.means(totals), **guesses.accuracies(), "examples": totals["examples"]}
