"""The optimizer against a float64 transcription of google-research/bert's, and the schedule's corners."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config import BiasCorrection, DecayShape, DecayStart, OptimizerConfig, OptimizerName, RunConfig
from bert_jax.training.optimizer import make_optimizer, make_schedule, scale_by_moments
from data_pipeline.errors import UserError

STEPS = 20
CONFIG = OptimizerConfig(learning_rate=1e-2, warmup_steps=5)
# Gradients of growing size: their global norm passes 1 on the way, so clipping acts on some steps only.
SCALES = np.geomspace(0.02, 2.0, STEPS)
SHAPES = {
    "dense": {"kernel": (3, 4), "bias": (4,)},
    "layer_norm": {"scale": (4,), "bias": (4,)},
    "attention_layer_norm": {"scale": (4,), "bias": (4,)},
    "word_embeddings": {"embedding": (5, 3)},
}

Paths = frozenset[tuple[str, str]]
Flat = dict[tuple[str, str], np.ndarray]

DECAYED: Paths = frozenset({("dense", "kernel"), ("word_embeddings", "embedding")})


def flatten(tree: dict) -> Flat:
    return {(a, b): np.asarray(x, np.float64) for a, inner in tree.items() for b, x in inner.items()}


def make_trees() -> tuple[dict, list[dict]]:
    """float32 parameters and the gradients of each step."""
    random = np.random.default_rng(0)

    def draw(scale: float) -> dict:
        return {
            a: {b: (random.normal(size=s) * scale).astype(np.float32) for b, s in inner.items()}
            for a, inner in SHAPES.items()
        }

    return draw(1.0), [draw(scale) for scale in SCALES]


def rate(config: OptimizerConfig, step: int) -> float:
    """GR optimization.py:32-54: warm-up, then decay counted from step 0 (or from the end of warm-up)."""
    if step < config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    start = 0 if config.decay_start == "step_0" else config.warmup_steps
    return config.learning_rate * (1 - (step - start) / (STEPS - start)) ** config.decay_power


def transcription(config: OptimizerConfig, params: Flat, gradients: list[Flat], decayed: Paths) -> list[Flat]:
    """GR optimization.py:100-160 in float64; parameters after each step."""
    m = {path: np.zeros_like(x) for path, x in params.items()}
    v = {path: np.zeros_like(x) for path, x in params.items()}
    history = []
    for step, raw in enumerate(gradients):
        norm = np.sqrt(sum((g**2).sum() for g in raw.values()))
        clip = 1.0 if config.clip_norm is None else config.clip_norm / max(norm, config.clip_norm)
        params = dict(params)
        for path, w in params.items():
            g = raw[path] * clip
            m[path] = config.beta1 * m[path] + (1 - config.beta1) * g
            v[path] = config.beta2 * v[path] + (1 - config.beta2) * g**2
            corrected = config.bias_correction == "adam"
            m_hat = m[path] / (1 - config.beta1 ** (step + 1)) if corrected else m[path]
            v_hat = v[path] / (1 - config.beta2 ** (step + 1)) if corrected else v[path]
            update = m_hat / (np.sqrt(v_hat) + config.epsilon)
            if path in decayed:
                update = update + config.weight_decay * w
            if config.name == "stable_adamw":  # Wortsman et al. 2023, Algorithm 2
                update = update / max(1, np.sqrt((g**2 / np.maximum(v_hat, config.epsilon**2)).mean()))
            if path in decayed and config.name == "lamb":
                update = update * np.linalg.norm(w) / np.linalg.norm(update)
            params[path] = w - rate(config, step) * update
        history.append(params)
    return history


def largest_difference(
    config: OptimizerConfig, decayed: Paths = DECAYED, name_of_ours: OptimizerName | None = None
) -> float:
    """Between ours and the transcription over `STEPS` steps."""
    params, gradients = make_trees()
    expected = transcription(config, flatten(params), [flatten(g) for g in gradients], decayed)
    tx = make_optimizer(dataclasses.replace(config, name=name_of_ours or config.name))

    @jax.jit
    def step(params: dict, state: tuple, gradient: dict, rate: float) -> tuple[dict, tuple]:
        norm = optax.tree.norm(gradient)
        updates, state = tx.update(gradient, state, params, learning_rate=rate, grad_norm=norm)
        return jax.tree.map(jnp.add, params, updates), state

    state, apart, rate_of = tx.init(params), 0.0, make_schedule(config, STEPS)
    for i, (gradient, wanted) in enumerate(zip(gradients, expected, strict=True)):
        params, state = step(params, state, gradient, rate_of(i))
        ours = flatten(params)
        apart = max(apart, *(np.abs(ours[path] - wanted[path]).max() for path in wanted))
    return float(apart)


@pytest.mark.parametrize("bias_correction", ["none", "adam"])
@pytest.mark.parametrize("clip_norm", [1.0, None])
def test_adamw_follows_google_research(bias_correction: BiasCorrection, clip_norm: float | None) -> None:
    config = dataclasses.replace(CONFIG, bias_correction=bias_correction, clip_norm=clip_norm)
    assert largest_difference(config) < 1e-6


def test_clipping_acts_on_some_steps_of_these_gradients() -> None:
    _, gradients = make_trees()
    norms = [np.sqrt(sum((g**2).sum() for g in flatten(tree).values())) for tree in gradients]
    assert min(norms) < 1 < max(norms)


def test_stable_adamw_leaves_a_row_without_gradients_in_place() -> None:
    """As that of a token that no batch had yet: 0 / 0, but for a floor of epsilon^2."""
    config = OptimizerConfig(
        name="stable_adamw", bias_correction="adam", clip_norm=None, weight_decay=0.0, epsilon=0.03
    )
    first, second = (np.full((4, 3), g, np.float32) for g in (0.01, 0.1))
    first[3] = second[3] = 0
    gradients = [{"embedding": g} for g in (first, second)]
    update = updates_of(config, {"embedding": np.ones((4, 3), np.float32)}, gradients)["embedding"]
    m = (0.9 * first + second) / 1.9
    v = (0.999 * first**2 + second**2) / 1.999  # where it is not 0, between epsilon^2 and epsilon
    surprise = np.sqrt((second[:3] ** 2 / v[:3]).mean() * 3 / 4)
    assert surprise > 1.1
    np.testing.assert_allclose(update, -1e-2 * m / (np.sqrt(v) + 0.03) / surprise, rtol=1e-4)


def test_stable_adamw_follows_its_paper() -> None:
    config = dataclasses.replace(CONFIG, name="stable_adamw", bias_correction="adam", clip_norm=None)
    assert largest_difference(config) < 1e-6
    # The gradients grow, so that it acts.
    assert largest_difference(config, name_of_ours="adamw") > 1e-3


def test_lamb_follows_its_paper() -> None:
    config = dataclasses.replace(
        CONFIG, name="lamb", bias_correction="adam", decay_power=0.5, decay_start="warmup_end"
    )
    assert largest_difference(config) < 1e-6


def orthogonalized(matrix: np.ndarray) -> np.ndarray:
    """Jordan et al. 2024: five steps of Newton-Schulz with the published coefficients, in float64."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        square = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
        polynomial = -4.7750 * square + 2.0315 * square @ square
        x = 3.4445 * x + (polynomial @ x if x.shape[0] <= x.shape[1] else x @ polynomial)
    return x


def test_muon_makes_the_matrices_of_layers_orthogonal_and_leaves_the_others_to_adamw() -> None:
    random = np.random.default_rng(0)
    shapes = {
        "encoder/layer_0/attention/query/kernel": (6, 2, 4),
        "encoder/layer_0/attention/output/kernel": (2, 4, 6),
        "encoder/layer_0/intermediate/kernel": (6, 10),
        "encoder/layer_0/intermediate/bias": (10,),
        "encoder/layer_0/output_layer_norm/scale": (6,),
        "encoder/embeddings/word_embeddings/embedding": (7, 6),
        "encoder/embeddings_project/kernel": (4, 6),
        "pooler/dense/kernel": (6, 6),
        "language_model/dense/kernel": (6, 6),
    }
    params, *gradients = (
        {path: random.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}
        for _ in range(3)
    )
    config = OptimizerConfig(name="muon", weight_decay=0.1, clip_norm=None)
    updates, adamw = (
        {path: np.asarray(x) for path, x in updates_of(config, params, gradients).items()}
        for config in (config, dataclasses.replace(config, name="adamw"))
    )
    for path, shape in shapes.items():
        if not (path.endswith("kernel") and path.startswith("encoder/layer_")):
            np.testing.assert_array_equal(updates[path], adamw[path], err_msg=path)
            continue
        matrix = (shape[0] * shape[1], shape[2]) if "attention/output" in path else (shape[0], -1)
        first, second = (gradient[path].reshape(matrix).astype(np.float64) for gradient in gradients)
        # Nesterov's momentum, corrected for its start from zero as in optax.
        momentum = 0.95 * 0.05 * first + 0.05 * second
        ahead = 0.95 * momentum / (1 - 0.95**3) + 0.05 * second / (1 - 0.95**2)
        direction = 0.2 * np.sqrt(max(ahead.shape)) * orthogonalized(ahead)
        expected = -1e-2 * (direction + 0.1 * params[path].reshape(matrix))
        np.testing.assert_allclose(updates[path].reshape(matrix), expected, atol=1e-5, err_msg=path)


def test_muons_momentum_is_kept_as_asked() -> None:
    params = {"encoder": {"layer_0": {"intermediate": {"kernel": jnp.ones((6, 10))}}}}
    config = OptimizerConfig(name="muon", moment_dtype="bfloat16")
    kept = {
        str(leaf.dtype) for leaf in jax.tree.leaves(make_optimizer(config).init(params)) if leaf.ndim == 2
    }
    assert kept == {"bfloat16"}


def updates_of(config: OptimizerConfig, params: dict, gradients: list[dict]) -> dict:
    """The update of the last of some steps with the same parameters."""
    tx = make_optimizer(config)
    nested, *steps = (unflatten_dict(tree, sep="/") for tree in (params, *gradients))
    state, updates = tx.init(nested), nested
    for gradient in steps:
        norm = optax.tree.norm(gradient)
        updates, state = tx.update(gradient, state, nested, learning_rate=np.float32(1e-2), grad_norm=norm)
    return flatten_dict(updates, sep="/")


def moments_after(config: OptimizerConfig, gradient: np.ndarray, steps: int) -> optax.ScaleByAdamState:
    """The moments of one array after steps with the same gradient."""
    tx = scale_by_moments(config)

    def step(state: optax.OptState, _: None) -> tuple[optax.OptState, None]:
        return tx.update(gradient, state)[1], None

    return jax.lax.scan(step, tx.init(jnp.zeros_like(gradient)), length=steps)[0]


def test_moments_in_bfloat16_are_right_on_average() -> None:
    """In a step, a second moment grows by less than half of bfloat16's last bit."""
    config = OptimizerConfig(moment_dtype="bfloat16")
    gradient = np.full((200, 100), 0.3, np.float32)
    rounded = moments_after(config, gradient, 1000)
    exact = moments_after(OptimizerConfig(), gradient, 1000)
    for ours, right in ((rounded.mu, exact.mu), (rounded.nu, exact.nu)):
        assert ours.dtype == jnp.bfloat16
        assert len(np.unique(ours)) > 1
        np.testing.assert_allclose(np.asarray(ours, np.float64).mean(), right.mean(), rtol=1e-3)


def test_moments_in_bfloat16_are_rounded_to_a_neighbour() -> None:
    gradient = np.random.default_rng(0).normal(size=(100, 100)).astype(np.float32)
    rounded = moments_after(OptimizerConfig(moment_dtype="bfloat16"), gradient, 1)
    exact = moments_after(OptimizerConfig(), gradient, 1)
    for ours, right in ((rounded.mu, exact.mu), (rounded.nu, exact.nu)):
        apart = np.abs(np.asarray(ours, np.float32) - right)
        assert (apart < np.abs(right) * 2.0**-7).all()
        nearest = np.asarray(right.astype(jnp.bfloat16), np.float32)
        # On average a quarter of them are rounded to the farther neighbour.
        assert 0.2 < (np.asarray(ours, np.float32) != nearest).mean() < 0.3
    # A step's own update is that of moments which are not rounded yet.
    config, params = OptimizerConfig(clip_norm=None), {"kernel": gradient}
    own, usual = (
        updates_of(dataclasses.replace(config, moment_dtype=dtype), params, [params])["kernel"]
        for dtype in ("bfloat16", "float32")
    )
    np.testing.assert_array_equal(own, usual)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_other_settings_than_the_defaults_count(name: OptimizerName) -> None:
    config = OptimizerConfig(
        name,
        learning_rate=1e-2,
        warmup_steps=5,
        beta1=0.8,
        beta2=0.98,
        epsilon=1e-3,
        bias_correction="adam" if name == "lamb" else "none",
        weight_decay=0.1,
        decay_exclusions=("bias",),
        clip_norm=0.5,
    )
    scales = {("layer_norm", "scale"), ("attention_layer_norm", "scale")}
    assert largest_difference(config, DECAYED | scales) < 1e-6


def test_the_first_update_is_of_rate_zero() -> None:
    params, gradients = make_trees()
    tx = make_optimizer(CONFIG)
    rate_of = make_schedule(CONFIG, STEPS)
    norm = optax.tree.norm(gradients[0])
    updates, _ = tx.update(gradients[0], tx.init(params), params, learning_rate=rate_of(0), grad_norm=norm)
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(updates))


@pytest.mark.parametrize(
    ("decay_start", "at_warmup_end", "halfway"), [("step_0", 0.9, 0.45), ("warmup_end", 1.0, 0.5)]
)
def test_schedule_corners(decay_start: DecayStart, at_warmup_end: float, halfway: float) -> None:
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=100, decay_start=decay_start)
    rate_of = make_schedule(config, 1000)
    corners = {0: 0.0, 1: 0.02, 99: 1.98, 100: 2 * at_warmup_end, 550: 2 * halfway, 1000: 0.0, 1200: 0.0}
    np.testing.assert_allclose([rate_of(step) for step in corners], list(corners.values()), atol=1e-6)


def test_a_triangle_rises_from_a_part_of_its_peak() -> None:
    """Cramming's one-cycle rate: min(1/4 + t, 4 (1 - t)) of the peak when a fraction t of the run is done."""
    config = OptimizerConfig(learning_rate=2.0, warmup_from=0.25, warmup_steps=750, decay_start="warmup_end")
    rate_of, steps = make_schedule(config, 1000), np.arange(0, 1000, 50)
    expected = 2 * np.minimum(0.25 + steps / 1000, 4 * (1 - steps / 1000))
    np.testing.assert_allclose([rate_of(step) for step in steps], expected, atol=1e-6)
    with pytest.raises(UserError, match=r"optimizer\.warmup_from is 1\.5; it must be from 0 to 1"):
        OptimizerConfig(warmup_from=1.5)


def test_schedule_power_and_no_warmup() -> None:
    rate_of = make_schedule(OptimizerConfig(learning_rate=1.0, warmup_steps=0, decay_power=0.5), 100)
    np.testing.assert_allclose([rate_of(0), rate_of(19), rate_of(75)], [1.0, 0.9, 0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "rates"),
    [
        ("polynomial", [2, 2, 2, 1.5, 1, 0]),
        ("cosine", [2, 2, 2, 1.70710678, 1, 0]),
        ("sqrt", [2, 2, 2, 1.0, 0.58578644, 0]),
    ],
)
def test_the_rate_is_constant_until_the_decay_starts(shape: DecayShape, rates: list[float]) -> None:
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=100, decay_shape=shape, decay_start=800)
    rate_of = make_schedule(config, 1000)
    assert rate_of(50) == 1
    steps = [100, 500, 800, 850, 900, 1000]
    np.testing.assert_allclose([rate_of(step) for step in steps], rates, atol=1e-6)


def test_a_cosine_is_that_of_optax() -> None:
    config = OptimizerConfig(
        learning_rate=0.3, warmup_steps=10, decay_shape="cosine", decay_start="warmup_end"
    )
    ours, theirs = make_schedule(config, 90), optax.warmup_cosine_decay_schedule(0, 0.3, 10, 90)
    steps = range(95)
    np.testing.assert_allclose([ours(step) for step in steps], [theirs(step) for step in steps], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay_shape": "cosine", "decay_power": 0.5}, "cosine has none"),
        ({"decay_shape": "sqrt", "decay_power": 0.5}, "sqrt has none"),
        ({"decay_start": -1}, "optimizer.decay_start is -1; it must be at least 0"),
        ({"decay_start": 5, "warmup_steps": 10}, r"it must be 0, or at least optimizer.warmup_steps \(10\)"),
        (
            {"decay_start": 100, "warmup_steps": 10},
            r"optimizer.decay_start is 100; it must be below num_train_steps \(100\)",
        ),
    ],
)
def test_impossible_schedules_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RunConfig(optimizer=OptimizerConfig(**settings), num_train_steps=100)


@pytest.mark.parametrize("decay_start", ["step_0", "warmup_end"])
def test_a_decay_of_power_0_is_none(decay_start: DecayStart) -> None:
    """At the last step too, where nothing is left of the decay."""
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=100, decay_power=0, decay_start=decay_start)
    rate_of = make_schedule(config, 1000)
    rates = {0: 0.0, 50: 1.0, 100: 2.0, 550: 2.0, 999: 2.0, 1000: 2.0, 1200: 2.0}
    np.testing.assert_array_equal([rate_of(step) for step in rates], list(rates.values()))
