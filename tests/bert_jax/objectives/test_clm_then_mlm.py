"""Causal before masked language modelling: each stage is `ltr` or `mlm`, in the same parameters."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.objectives import CausalThenMaskedLM, LeftToRight, MaskedLM, Objective
from bert_jax.objectives.clm_then_mlm import causal_first
from bert_jax.objectives.task import PretrainingTask
from bert_jax.task import Sums
from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batch_contract import SLOT_KEYS
from tests.bert_jax.model.test_packed_rows import make_batches
from tests.bert_jax.small_run import trainable_params
from tests.bert_jax.tiny_model import TINY

MODEL = dataclasses.replace(TINY, num_layers=2, dropout_rate=0.0, attention_dropout_rate=0.0)
STAGES = CausalThenMaskedLM(z_loss=0.1)
PARAMS = trainable_params(MODEL, STAGES)


def evaluate(objective: Objective, batch: dict[str, np.ndarray]) -> tuple[Sums, float]:
    """All sums of a batch, and its loss."""
    model = dataclasses.replace(MODEL, attention=objective.attention)
    task = PretrainingTask(objective, model)

    @jax.jit
    def compute() -> tuple[Sums, jax.Array]:
        outputs = task.module.apply({"params": PARAMS}, batch, deterministic=True)
        sums, totals = task.numerators(outputs, batch), task.denominators(batch)
        return {**sums, **totals}, task.loss(sums, totals)

    sums, loss = compute()
    return {name: np.asarray(value) for name, value in sums.items()}, float(loss)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "alone"), [("lm", LeftToRight(z_loss=0.1)), ("mlm", MaskedLM(z_loss=0.1))])
def test_a_stage_has_the_sums_and_the_loss_of_its_objective(
    kind: str, alone: Objective, packed: bool
) -> None:
    batch = make_batches()[packed]
    if kind == "lm":
        batch = {name: array[:, :0] if name in SLOT_KEYS else array for name, array in batch.items()}
    sums, loss = evaluate(STAGES, batch)
    expected, loss_alone = evaluate(alone, batch)
    own = {name: value for name, value in sums.items() if name.startswith(f"{kind}_")}
    np.testing.assert_equal({**own, "examples": sums["examples"], "tokens": sums["tokens"]}, expected)
    assert len(sums) == 2 * 4 + 2
    assert sum(float(value) for name, value in sums.items() if "lm_" in name) == pytest.approx(
        sum(float(value) for value in own.values())
    )
    assert loss == loss_alone
    means = STAGES.means({name: float(value) for name, value in sums.items()})
    assert means.keys() == {"loss", f"{kind}_loss", f"{kind}_perplexity", f"{kind}_accuracy"}
    assert STAGES.predicted(batch).keys() == {f"{kind}_accuracy"}


def test_the_loss_of_steps_of_both_stages_is_the_mean_over_all_predictions() -> None:
    sums = {"lm_loss": 6.0, "lm_correct": 1.0, "lm_weight": 3.0}
    masked = {"mlm_loss": 5.0, "mlm_correct": 1.0, "mlm_weight": 1.0}
    assert CausalThenMaskedLM().means(sums | masked)["loss"] == pytest.approx(11 / 4)


def test_a_stage_costs_what_its_objective_costs() -> None:
    shape = {"length": 16, "instances": 1}
    assert STAGES.flops(MODEL, predictions=0, **shape) == LeftToRight().flops(MODEL, predictions=0, **shape)
    assert STAGES.flops(MODEL, predictions=3, **shape) == MaskedLM().flops(MODEL, predictions=3, **shape)


def test_a_quarter_of_the_steps_is_causal_unless_the_phases_say_otherwise() -> None:
    short, long = Phase(64, 10, 0.125), Phase(128, 20, 0.875)
    data = STAGES.required_data(DataConfig(phases=(short, long), masking=MaskingConfig(rate=0.0)))
    assert data.masking.rate == 0.15
    assert data.phases == (Phase(64, 0, 0.125), Phase(128, 0, 0.125), Phase(128, 20, 0.75))
    assert STAGES.required_data(data) == data
    assert causal_first((Phase(64, 10),), 1.0) == (Phase(64, 0),)
    for fractions in ((0.2, 0.05, 0.75), (1 / 12, 1 / 12, 1 / 12, 0.75), (0.1, 0.1, 0.05, 0.75)):
        parts = tuple(Phase(64, 10, fraction) for fraction in fractions)
        stages = causal_first(parts, 0.25)
        assert [stage.max_predictions_per_seq for stage in stages] == [0] * (len(parts) - 1) + [10]
        DataConfig(phases=stages)


@pytest.mark.parametrize("slots", [(20,), (0,), (20, 0), (0, 20, 0)])
def test_phases_without_two_stages_are_refused(slots: tuple[int, ...]) -> None:
    phases = tuple(Phase(max_predictions_per_seq=most, fraction=1 / len(slots)) for most in slots)
    with pytest.raises(
        UserError, match=rf"is {', '.join(map(str, slots))} in the phases; .* must be 0 in the"
    ):
        STAGES.check(DataConfig(phases=phases))
