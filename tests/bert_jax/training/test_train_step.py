"""The step as a pure function: sums, dropout keys, the guard against NaN, types."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import OptimizerConfig, OptimizerName, Remat
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLM, MaskedLMAndNSP
from bert_jax.objectives.task import PretrainingTask
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.train_step import TrainState, eval_step, init_state, train_step
from tests.bert_jax.tiny_model import TINY

CONFIG = dataclasses.replace(TINY, dropout_rate=0.0, attention_dropout_rate=0.0)
RATE = np.float32(1e-2)
NUMERATORS = ("mlm_loss", "mlm_correct", "nsp_loss", "nsp_correct")
DENOMINATORS = ("mlm_weight", "examples", "tokens")


def make_batch(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    ids = random.integers(0, CONFIG.vocab_size, (4, 10), dtype=np.int32)
    return {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": np.tile(np.array([1, 5], np.int32), (4, 1)),
        "masked_lm_ids": ids[:, [2, 3]],
        "masked_lm_weights": np.ones((4, 2), np.float32),
        "next_sentence_labels": np.array([0, 1, 1, 0], np.int32),
    }


@jax.jit
def initial_state(seed: int) -> TrainState:
    """Initial parameters depend neither on dropout nor on the compute dtype, so all tests share these."""
    return init_state(PretrainingTask(MaskedLMAndNSP(), CONFIG), make_optimizer(OptimizerConfig()), seed)


@functools.cache
def compiled(config: ModelConfig, remat: Remat = "none"):  # type: ignore[no-untyped-def]
    """(a state at step 0, step(state, batch, key), evaluate(params, batch))."""
    task = PretrainingTask(MaskedLMAndNSP(), config)
    tx = make_optimizer(OptimizerConfig())

    def step(state: TrainState, batch: dict, key: jax.Array = jax.random.key(0)) -> TrainState:  # noqa: B008
        return train_step(state, batch, RATE, key, task=task, tx=tx, remat=remat)

    return initial_state(3), jax.jit(step), jax.jit(functools.partial(eval_step, task=task))


def assert_same(a, b) -> None:  # type: ignore[no-untyped-def]
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_sums_add_up_over_steps() -> None:
    state, step, evaluate = compiled(CONFIG)
    first = step(state, make_batch(0))
    second = step(first, make_batch(1))
    parts = evaluate(state.params, make_batch(0)), evaluate(first.params, make_batch(1))
    for name in (*NUMERATORS, *DENOMINATORS):
        np.testing.assert_allclose(second.sums[name], sum(p[name] for p in parts), rtol=1e-5, err_msg=name)
    assert (int(second.step), float(second.sums["steps"])) == (2, 2)
    assert float(second.sums["grad_norm"]) > float(first.sums["grad_norm"]) > 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_step_changes_nothing_and_is_named(bad: float) -> None:
    state, step, _ = compiled(CONFIG)
    good = step(state, make_batch(0))
    poisoned = {**make_batch(1), "masked_lm_weights": np.full((4, 2), bad, np.float32)}
    after = step(good, poisoned)
    assert_same((after.params, after.opt_state), (good.params, good.opt_state))
    assert (int(after.step), int(after.first_nonfinite_step)) == (2, 1)
    later = step(step(after, make_batch(2)), poisoned)
    assert_same((later.params, later.opt_state), (good.params, good.opt_state))
    assert int(later.first_nonfinite_step) == 1
    assert int(good.first_nonfinite_step) == -1


@pytest.mark.slow
def test_computing_again_what_was_not_kept_changes_nothing() -> None:
    config = dataclasses.replace(CONFIG, dropout_rate=0.3, attention_dropout_rate=0.3)
    state, step, _ = compiled(config)
    _, saving_step, _ = compiled(config, "layers")
    kept, again = step(state, make_batch()), saving_step(state, make_batch())
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), again, kept)
    products = [str(s.trace(state, make_batch()).jaxpr).count("dot_general") for s in (step, saving_step)]
    assert products[0] < products[1]


def test_dropout_depends_on_the_key_and_the_step_and_nothing_else() -> None:
    config = dataclasses.replace(CONFIG, dropout_rate=0.3, attention_dropout_rate=0.3)
    state, step, evaluate = compiled(config)
    batch = make_batch()

    def loss(state: TrainState, seed: int) -> float:
        return float(step(state, batch, jax.random.key(seed)).sums["mlm_loss"])

    later = state.replace(step=jnp.int32(1))
    assert loss(state, 0) == loss(state, 0)
    assert len({loss(state, 0), loss(state, 1), loss(later, 0)}) == 3
    _, _, evaluate_calm = compiled(CONFIG)
    assert_same(evaluate(state.params, batch), evaluate_calm(state.params, batch))


def test_every_micro_batch_draws_its_own_dropout() -> None:
    task, tx = (
        PretrainingTask(MaskedLMAndNSP(), dataclasses.replace(CONFIG, dropout_rate=0.5)),
        make_optimizer(OptimizerConfig()),
    )
    step = jax.jit(functools.partial(train_step, task=task, tx=tx, accumulation_steps=2))

    def loss(micro_batch: int) -> float:
        """The loss of the same row in one of two places, with padding in the other."""
        rows = {name: np.zeros_like(x[:2]) for name, x in make_batch().items()}
        for name, x in make_batch().items():
            rows[name][micro_batch] = x[0]
        return float(step(initial_state(3), rows, RATE, jax.random.key(0)).sums["mlm_loss"])

    assert loss(0) == loss(0)
    assert abs(loss(0) - loss(1)) > 0.01


def test_training_learns_a_batch_by_heart() -> None:
    state, step, evaluate = compiled(CONFIG)
    before = evaluate(state.params, make_batch())
    for _ in range(60):
        state = step(state, make_batch())
    after = evaluate(state.params, make_batch())
    assert float(after["mlm_loss"]) < 0.1 * float(before["mlm_loss"])
    assert float(after["nsp_loss"]) < 0.1 * float(before["nsp_loss"])


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_parts_that_an_objective_does_not_train_stay_as_they_were_drawn(optimizer: OptimizerName) -> None:
    task = PretrainingTask(MaskedLM(), CONFIG)
    tx = make_optimizer(OptimizerConfig(name=optimizer, bias_correction="adam"))
    state = jax.jit(functools.partial(init_state, task, tx))(3)
    step = jax.jit(functools.partial(train_step, task=task, tx=tx))
    after = step(state, make_batch(), RATE, jax.random.key(0))
    for part in ("pooler", "next_sentence"):
        assert_same(after.params[part], state.params[part])
    kernel = after.params["language_model"]["dense"]["kernel"]
    assert not np.array_equal(kernel, state.params["language_model"]["dense"]["kernel"])


def test_bfloat16_keeps_float32_state_and_losses() -> None:
    state, step, _ = compiled(dataclasses.replace(CONFIG, dtype="bfloat16"))
    after = step(state, make_batch())
    floats = [x for x in jax.tree.leaves(after) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}
    _, reference_step, _ = compiled(CONFIG)
    reference = reference_step(state, make_batch())
    np.testing.assert_allclose(after.sums["mlm_loss"], reference.sums["mlm_loss"], rtol=0.01)
    assert float(after.sums["mlm_loss"]) != float(reference.sums["mlm_loss"])


def test_initial_parameters_depend_on_the_seed() -> None:
    first, again, other = (initial_state(seed).params for seed in (3, 3, 4))
    assert_same(first, again)
    kernel = first["pooler"]["dense"]["kernel"]
    assert not np.array_equal(kernel, other["pooler"]["dense"]["kernel"])
