"""The z-loss of every objective that predicts tokens."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.language_model import token_loss, token_means, token_sums
from data_pipeline.errors import UserError

LOGITS = np.random.default_rng(0).normal(0, 3, (2, 3, 11)).astype(np.float32)
TARGETS = np.array([[1, 4, 0], [10, 3, 2]])
WEIGHTS = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
TOTALS = {"mlm_weight": WEIGHTS.sum()}


def loss_of(logits: jax.Array, z_loss: float) -> jax.Array:
    return token_loss("mlm", token_sums("mlm", logits, TARGETS, WEIGHTS, z_loss), TOTALS, z_loss)


def test_it_is_the_mean_of_the_squared_log_of_z() -> None:
    log_z = np.log(np.exp(LOGITS.astype(np.float64)).sum(-1))
    expected = 0.1 * (log_z**2 * WEIGHTS).sum() / WEIGHTS.sum()
    assert loss_of(LOGITS, 0.1) - loss_of(LOGITS, 0.0) == pytest.approx(expected, rel=1e-4)


def test_it_alone_pulls_all_logits_together_down() -> None:
    """Cross-entropy does not change with a number that is added to all logits."""
    added = [jax.grad(lambda c, z=z: loss_of(LOGITS + c, z))(jnp.float32(0)) for z in (0.0, 0.1)]
    assert added[0] == pytest.approx(0, abs=1e-6)
    assert added[1] > 0.1


def test_the_row_of_a_log_has_it_in_the_loss_and_not_in_the_cross_entropy() -> None:
    sums = {name: float(value) for name, value in token_sums("mlm", LOGITS, TARGETS, WEIGHTS, 0.1).items()}
    row = token_means("mlm", {**sums, **TOTALS}, 0.1)
    assert row["loss"] == pytest.approx(float(loss_of(LOGITS, 0.1)), rel=1e-4)
    assert row["mlm_loss"] == pytest.approx(float(loss_of(LOGITS, 0.0)), rel=1e-4)


WITH_Z_LOSS = [name for name, kind in OBJECTIVES.items() if hasattr(kind, "z_loss")]


@pytest.mark.parametrize("name", WITH_Z_LOSS)
def test_every_objective_adds_it_to_its_loss(name: str) -> None:
    objective = dataclasses.replace(OBJECTIVES[name](), z_loss=0.1)
    squares = {
        "hybrid": {"mlm": 30.0, "lm": 30.0},
        "clm_then_mlm": {"mlm": 30.0, "lm": 0.0},
        "span_boundary": {"mlm": 30.0, "sbo": 30.0},
        **{left_or_right: {"lm": 30.0} for left_or_right in ("ltr", "rtl", "ltr_rtl")},
    }
    # The cross-entropy is 0, and so are the other terms of a loss.
    sums = collections.defaultdict(float, dict.fromkeys(("lm_loss", "mlm_loss", "sbo_loss"), 0.0))
    sums |= dict.fromkeys(("lm_correct", "mlm_correct", "sbo_correct"), 0.0)
    sums |= {f"{kind}_squared_log_z": square for kind, square in squares.get(name, {"mlm": 30.0}).items()}
    totals = dict.fromkeys(("lm_weight", "mlm_weight", "sbo_weight", "examples", "tokens"), 10.0)
    if name == "clm_then_mlm":
        totals["lm_weight"] = 0.0  # a step is of one kind
    # The loss of hybrid is a mean of two kinds, that of span_boundary their sum.
    expected = 0.6 if name == "span_boundary" else 0.3
    assert float(objective.loss(sums, totals)) == pytest.approx(expected, rel=1e-4)
    assert objective.means(sums | totals)["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", WITH_Z_LOSS)
def test_it_is_not_negative(name: str) -> None:
    with pytest.raises(UserError, match=r"objective\.z_loss is -1"):
        dataclasses.replace(OBJECTIVES[name](), z_loss=-1.0)
