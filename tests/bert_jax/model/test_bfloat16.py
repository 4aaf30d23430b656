"""Gradients in bfloat16 are close to those in float32, for every parameter.

What is summed over all positions, as the gradient of a bias is, has to be summed in float32: a bfloat16 sum
of as many terms as here is wrong by 0.03 to 0.23 of its norm.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.model.dropout import dropout
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.task import PretrainingTask
from bert_jax.task import Batch
from data_pipeline.config import Phase
from tests.bert_jax.drawn import draw_params
from tests.bert_jax.encoders import ENCODERS
from tests.bert_jax.tiny_model import TINY

ROWS, LENGTH, PREDICTIONS = 64, 128, 20
TOLERANCE = 0.03
"""Of the norm of a gradient in float32."""


def make_batch(task: PretrainingTask) -> Batch:
    random = np.random.default_rng(2)
    shapes = task.abstract_batch(Phase(LENGTH, PREDICTIONS), ROWS, 1)
    above = {"input_ids": TINY.vocab_size, "masked_lm_ids": TINY.vocab_size, "masked_lm_positions": LENGTH}
    drawn = {name: random.integers(0, above.get(name, 2), leaf.shape) for name, leaf in shapes.items()}
    ones = dict.fromkeys(("input_mask", "masked_lm_weights"), 1)
    return {
        name: jnp.full(leaf.shape, ones.get(name, drawn[name]), leaf.dtype) for name, leaf in shapes.items()
    }


def gradients(model: ModelConfig, objective: str, params: dict, batch: Batch) -> dict[tuple, np.ndarray]:
    task = PretrainingTask(OBJECTIVES[objective](), model)

    def loss(params: dict) -> jax.Array:
        outputs = task.module.apply({"params": params}, batch, deterministic=True, rngs={"sampling": key})
        return task.loss(task.numerators(outputs, batch), task.denominators(batch))

    key = jax.random.key(0)
    return flatten_dict(jax.device_get(jax.jit(jax.grad(loss))(params)))


@pytest.mark.parametrize(
    ("objective", "encoder"), [("mlm_nsp", "bert"), ("mlm_nsp", "euro"), ("ltr", "bert")]
)
def test_every_gradient_in_bfloat16_is_close_to_that_in_float32(objective: str, encoder: str) -> None:
    parts: dict[str, Any] = ENCODERS[encoder]
    model = dataclasses.replace(TINY, **parts, num_layers=1, max_position_embeddings=LENGTH)
    task = PretrainingTask(OBJECTIVES[objective](), model)
    params, batch = draw_params(task.abstract_params()), make_batch(task)
    exact, found = (
        gradients(dataclasses.replace(model, dtype=dtype), objective, params, batch)
        for dtype in ("float32", "bfloat16")
    )
    errors = {
        "/".join(path): np.linalg.norm(found[path] - gradient) / norm
        for path, gradient in exact.items()
        # A key's bias adds the same to all scores of a query: its gradient is zero but for rounding.
        if (norm := np.linalg.norm(gradient)) > 1e-5
    }
    assert len(errors) > 10
    assert not {name: error for name, error in errors.items() if error > TOLERANCE}


def test_dropout_scales_by_the_inverse_of_the_probability_of_keeping() -> None:
    x = jax.random.uniform(jax.random.key(0), (256, 256), jnp.bfloat16, 1.0, 2.0)
    kept = np.asarray(dropout(x, 0.1, jax.random.key(1)), np.float32)
    scales = kept[kept > 0] / np.asarray(x, np.float32)[kept > 0]
    assert scales.mean() == pytest.approx(1 / 0.9, rel=2e-4)  # the nearest bfloat16 number is off by 1.6e-3
