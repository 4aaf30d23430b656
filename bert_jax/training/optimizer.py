"""Update rules as optax transformations, by default AdamW with google-research/bert's semantics.

Every departure from them (`optimization.py` there) is a named setting of `OptimizerConfig`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import tree_map_with_path
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from bert_jax.config import OptimizerConfig
from bert_jax.parameter_paths import names_of

# Usual root mean square of AdamW's directions (Liu et al. 2025, section 2.2).
_ADAMW_SIZE = 0.2


def make_schedule(config: OptimizerConfig, num_train_steps: int) -> Callable[[int], np.float32]:
    """Linear warm-up from `warmup_from`, then a decay from `decay_start` on, to 0 at `num_train_steps`.

    With `decay_start` step_0 the rate drops where warm-up ends, from the peak to what the decay gives there:
    what google-research/bert does (optimization.py:32-54, its issue 193). With
    `decay_power` 0 the rate stays at its peak, at the last step too.

    Returns:
      A function from the 0-based step to the rate of that step's update.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    first = peak * config.warmup_from
    match config.decay_start:
        case "step_0":
            start = 0
        case "warmup_end":
            start = warmup
        case step:
            start = step
    span = max(num_train_steps - start, 1)

    def rate(step: int) -> np.float32:
        if step < warmup:
            return np.float32(first + (peak - first) * step / warmup)
        decayed = min(max(step - start, 0) / span, 1)
        match config.decay_shape:
            case "polynomial":
                return np.float32(peak * (1 - decayed) ** config.decay_power)
            case "cosine":
                return np.float32(peak * (1 + math.cos(math.pi * decayed)) / 2)
            case "sqrt":  # Haegele et al. 2024, arXiv 2405.18392, section 4
                return np.float32(peak * (1 - math.sqrt(decayed)))

    return rate


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """The update rule: clip, moments, weight decay, (LAMB: trust ratio), learning rate.

    The rate is an argument of `update`, so that one compiled step serves all rates and schedules; so
    is the gradient's global norm, which the step computes anyway:

        updates, opt_state = tx.update(gradients, opt_state, params, learning_rate=rate, grad_norm=norm)

    LAMB (You et al. 2020) applies no trust ratio to the parameters that are excluded from weight
    decay, as its authors' code does.

    StableAdamW (Wortsman et al. 2023, arXiv 2304.13013, Algorithm 2) limits the step of each array.

    Muon (Jordan et al. 2024) takes the place of the moments for the kernels of the encoder's layers, as
    matrices with the heads joined. Its orthogonal updates have the size of AdamW's, so that rates and
    weight decays are the same for both (Liu et al. 2025, arXiv 2502.16982, section 2.2).
    """
    clip = optax.identity() if config.clip_norm is None else clip_by_given_norm(config.clip_norm)
    decayed = _decay_mask(config.decay_exclusions)
    moments = scale_by_moments(config)
    decay = optax.add_decayed_weights(config.weight_decay, mask=decayed)
    rule: tuple[optax.GradientTransformation, ...]
    match config.name:
        case "adamw":
            rule = (moments, decay, optax.identity())  # for LAMB's ratio: both have one form of state
        case "lamb":
            rule = (moments, decay, optax.masked(optax.scale_by_trust_ratio(), decayed))
        case "stable_adamw":
            rule = (limit_steps(optax.chain(moments, decay), config),)
        case "muon":
            each = {"muon": scale_by_orthogonalization(config), "adamw": moments}
            rule = (optax.partition(each, _rule_of_each), decay)
    rate = _scale_by(lambda learning_rate, **_: -learning_rate)
    return optax.chain(clip, *rule, rate)


def _scale_by(factor: Callable[..., jax.Array | np.float32]) -> optax.GradientTransformationExtraArgs:
    """Multiplies by a scalar that `factor` makes of the further arguments that `update` is given."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None, **given: Any
    ) -> tuple[optax.Updates, optax.OptState]:
        del params
        scale = factor(**given)
        return jax.tree.map(lambda u: u * scale, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def clip_by_given_norm(clip_norm: float) -> optax.GradientTransformationExtraArgs:
    """Scales a gradient down to `clip_norm` if the `grad_norm` that `update` is given is larger.

    Multiplies by one scalar, which XLA fuses into the moments' update; optax's own clipping divides every
    element, and the clipped gradient is then stored first.
    """
    return _scale_by(lambda grad_norm, **_: clip_norm / jnp.maximum(grad_norm, clip_norm))


def scale_by_moments(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adam's direction `m / (sqrt(v) + epsilon)`, with or without bias correction.

    optax's own `scale_by_adam` always corrects; google-research/bert never does, which makes its
    first updates about (1 - beta1) / sqrt(1 - beta2) = 3.2 times as large.

    The direction is of moments in float32. With `moment_dtype` bfloat16 they are rounded for the next step.
    Rounding to nearest would never change a second moment by less than 1/512 of it, and so by no gradient of
    usual size if beta2 is 0.999.
    """
    beta1, beta2 = config.beta1, config.beta2

    def init(params: optax.Params) -> optax.ScaleByAdamState:
        zeros = optax.tree.zeros_like(params, dtype=config.moment_dtype)
        # The step's input is donated, and one buffer cannot be donated as two arrays.
        return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), zeros, jax.tree.map(jnp.copy, zeros))

    def update(
        gradients: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        del params
        assert isinstance(state, optax.ScaleByAdamState)
        count = state.count + 1
        mu, nu = optax.tree.cast((state.mu, state.nu), jnp.float32)
        mu = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, mu, gradients)
        nu = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, nu, gradients)
        m_scale, v_scale = jnp.float32(1), jnp.float32(1)
        if config.bias_correction == "adam":
            m_scale, v_scale = 1 / (1 - beta1**count), 1 / (1 - beta2**count)
        direction = jax.tree.map(
            lambda m, v: (m * m_scale) / (jnp.sqrt(v * v_scale) + config.epsilon), mu, nu
        )
        if config.moment_dtype == "bfloat16":
            words = _random_words(mu, count)
            mu = jax.tree.map(lambda m, word: _round_at_random(m, word >> 16), mu, words)
            nu = jax.tree.map(lambda v, word: _round_at_random(v, word & 0xFFFF), nu, words)
        return direction, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def _round_at_random(x: jax.Array, bits: jax.Array) -> jax.Array:
    """Rounds float32 to one of the two nearest bfloat16, the nearer one more probably, so that the expected
    value is `x`; `bits` are uniform below 2**16."""
    # bfloat16 is the upper half of float32: what is added to the lower half may carry over.
    upper = (jax.lax.bitcast_convert_type(x, jnp.uint32) + bits) >> 16
    return jax.lax.bitcast_convert_type(upper.astype(jnp.uint16), jnp.bfloat16)


def _random_words(arrays: optax.Params, step: jax.Array) -> optax.Params:
    """uint32 for each element, a function of the step and of the element's place alone.

    It is a hash (the finalizer of MurmurHash3, Appleby 2011). With the generator of dropout's bits, the TPU
    compiler estimates 61.7 M cycles for a step of BERT-BASE, and with this hash 55.0 M.
    """
    leaves, structure = jax.tree.flatten(arrays)
    keys = jax.random.bits(jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), step), (len(leaves),))

    def words(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        x = jnp.broadcast_to(key, shape)
        for axis in range(len(shape)):
            place = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
            x += place * jnp.uint32(math.prod(shape[axis + 1 :]))
        x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
        return x ^ (x >> 16)

    return jax.tree.unflatten(
        structure, [words(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    )


def limit_steps(steps: optax.GradientTransformation, config: OptimizerConfig) -> optax.GradientTransformation:
    """Divides the step of each array by how much larger its gradient is than its second moment says.

    That is the root mean square over the array of gradient / sqrt(v), but at least 1.

    Args:
      steps: a chain that begins with `scale_by_moments`, bias-corrected.
      config: with the settings of the moments.
    """

    def update(
        gradients: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        updates, state = steps.update(gradients, state, params)
        moments = state[0]
        v_scale = 1 / (1 - config.beta2**moments.count)

        def limit(update: jax.Array, g: jax.Array, v: jax.Array) -> jax.Array:
            expected = jnp.maximum(v.astype(jnp.float32) * v_scale, config.epsilon**2)
            surprise = jnp.sqrt((g * g / expected).mean())
            return update / jnp.maximum(surprise, 1)

        return jax.tree.map(limit, updates, gradients, moments.nu), state

    return optax.GradientTransformation(steps.init, update)


def scale_by_orthogonalization(config: OptimizerConfig) -> optax.GradientTransformation:
    """Muon's direction for kernels, its root mean square that of AdamW's directions.

    Newton-Schulz iteration of Nesterov momentum 0.95, as optax has it. A matrix with orthonormal rows or
    columns has a root mean square of 1 / sqrt(its longer side).
    """

    def axes(path: tuple, kernel: jax.Array) -> MuonDimensionNumbers:
        # Attention's output layer alone has the heads among its inputs.
        num_inputs = 2 if names_of(path)[-3:-1] == ("attention", "output") else 1
        every = tuple(range(kernel.ndim))
        return MuonDimensionNumbers(every[:num_inputs], every[num_inputs:])

    def scale(direction: jax.Array, axes: MuonDimensionNumbers) -> jax.Array:
        sides = (math.prod(direction.shape[i] for i in side) for side in axes)
        return _ADAMW_SIZE * math.sqrt(max(sides)) * direction

    axes_of = functools.partial(tree_map_with_path, axes)
    return optax.chain(
        scale_by_muon(mu_dtype=config.moment_dtype, weight_dimension_numbers=axes_of),
        optax.stateless(lambda updates, _: jax.tree.map(scale, updates, axes_of(updates))),
    )


def _rule_of_each(params: optax.Params) -> optax.Params:
    """muon for the kernels of the encoder's layers, adamw for all other parameters."""

    def rule(path: tuple, _: jax.Array) -> str:
        *outer, last = names_of(path)
        is_of_layer = "encoder" in outer and any(name.startswith("layer_") for name in outer)
        return "muon" if last == "kernel" and is_of_layer else "adamw"

    return tree_map_with_path(rule, params)


def _decay_mask(exclusions: tuple[str, ...]) -> Callable[[optax.Params], optax.Params]:
    def is_decayed(path: tuple, _: jax.Array) -> bool:
        return not any(word in name for name in names_of(path) for word in exclusions)

    return lambda params: tree_map_with_path(is_decayed, params)
