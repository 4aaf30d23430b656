"""Held-out evaluation: the same fixed batches every time, summed exactly, then divided once."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.metrics import GuessCounter, means
from bert_jax.parallel import Program
from data_pipeline.errors import UserError


def evaluate(program: Program, params: Any, batches: Iterable[Mapping[str, np.ndarray]]) -> dict[str, float]:
    """Metrics of `bert_jax.metrics.means` and what guessing scores on the same labels.

    Args:
      program: compiled experiment.
      params: parameters on the devices.
      batches: held-out batches of equal shape; padding rows count nowhere.

    Raises:
      UserError: there is no batch, or nothing in it to predict.
    """
    model = program.experiment.model
    guesses = GuessCounter(model.objective, model.vocab_size)
    parts = []
    for batch in batches:
        guesses.add(batch)
        parts.append(program.eval_step(params, program.put(batch)))
    # float64 on the host: thousands of float32 sums would lose digits.
    totals: dict[str, float] = {}
    for part in jax.device_get(parts):
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + float(value)
    if not totals.get("mlm_weight"):
        raise UserError("the held-out documents give no token to predict; prepare with a larger --holdout")
    return {**means(totals, model.objective), **guesses.accuracies(), "examples": totals["examples"]}


def put_params(program: Program, params: Any) -> Any:
    """Places parameters from the host on the devices, where the program's own would be."""
    places = program.abstract_state().params
    return jax.tree.map(lambda value, place: jax.device_put(value, place.sharding), params, places)
