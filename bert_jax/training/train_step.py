"""One training step as a pure function of (state, batch, learning rate, key); it knows no mesh.

`program.py` compiles it by jit or by pmap. Under pmap alone it sums over the devices and has a dropout key
for each of them: under jit the arrays are global, and XLA inserts the sums.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.tree_util import tree_map_with_path

from bert_jax.config import Remat
from bert_jax.model.encoder import LAYER_INPUT
from bert_jax.parameter_paths import names_of
from bert_jax.task import Batch, Sums, Task

Params: TypeAlias = optax.Params

T = TypeVar("T")


@flax.struct.dataclass
class TrainState:
    """Everything that a run carries from step to step, and all that a checkpoint holds."""

    step: jax.Array
    """int32 []: number of steps done."""
    params: Params
    """float32 parameters."""
    opt_state: optax.OptState
    sums: Sums
    """float32 [] each: metrics added up since they were last reset, so that a logged mean over
    steps does not depend on where a run was interrupted."""
    first_nonfinite_step: jax.Array
    """int32 []: the first step whose loss or gradient was NaN or infinite; -1 while there is none.
    From that step on parameters and optimizer state stay as they were before it."""


def init_state(task: Task, tx: optax.GradientTransformation, seed: jax.typing.ArrayLike) -> TrainState:
    """A state at step 0.

    Parameters are drawn with threefry2x32 whatever generator dropout uses, so that they depend on
    the seed and the model's shape alone.
    """
    key = jax.random.key(seed, impl="threefry2x32")
    batch = task.example_batch()
    outputs, variables = task.module.init_with_output(key, batch, deterministic=True)
    sums = (*task.numerators(outputs, batch), *task.denominators(batch), "grad_norm", "steps")
    return TrainState(
        step=jnp.zeros([], jnp.int32),
        params=variables["params"],
        opt_state=tx.init(variables["params"]),
        sums={name: jnp.zeros([], jnp.float32) for name in sums},
        first_nonfinite_step=jnp.full([], -1, jnp.int32),
    )


def train_step(
    state: TrainState,
    batch: Batch,
    learning_rate: jax.Array,
    key: jax.Array,
    *,
    task: Task,
    tx: optax.GradientTransformationExtraArgs,
    accumulation_steps: int = 1,
    remat: Remat = "none",
    axis_name: str | None = None,
) -> TrainState:
    """The state after one more step.

    Args:
      state: state before the step.
      batch: the batch, or under pmap this device's rows of it.
      learning_rate: float32 [], rate of this step.
      key: the run's key; folded with the step number for the module's stream "sampling", and also with
        device and micro-batch for "dropout".
      task: what to learn.
      tx: optimizer.
      accumulation_steps: micro-batches to compute one after the other; divides the batch.
      remat: which activations to compute again for the gradient instead of keeping them.
      axis_name: name of the pmapped axis, or None outside pmap.
    """
    add_devices = functools.partial(jax.lax.psum, axis_name=axis_name) if axis_name else lambda tree: tree
    totals = add_devices(task.denominators(batch))
    key = step_key = jax.random.fold_in(key, state.step)
    if axis_name:
        key = jax.random.fold_in(key, jax.lax.axis_index(axis_name))

    loss = functools.partial(_loss, task, step_key)
    gradient = jax.grad(_rematerialized(loss, remat), has_aux=True)
    gradients, sums = add_devices(_accumulate(gradient, state.params, batch, totals, key, accumulation_steps))
    grad_norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(task.loss(sums, totals)) & jnp.isfinite(grad_norm)
    healthy = finite & (state.first_nonfinite_step < 0)

    def update() -> tuple[Params, optax.OptState]:
        updates, opt_state = tx.update(
            gradients, state.opt_state, state.params, learning_rate=learning_rate, grad_norm=grad_norm
        )
        return optax.apply_updates(state.params, _scale_by_rate(task, updates)), opt_state

    params, opt_state = _replace_if(healthy, update, (state.params, state.opt_state))
    step_sums = {**sums, **totals, "grad_norm": grad_norm, "steps": jnp.float32(1)}
    return TrainState(
        step=state.step + 1,
        params=params,
        opt_state=opt_state,
        sums=jax.tree.map(jnp.add, state.sums, step_sums),
        first_nonfinite_step=jnp.where(
            ~finite & (state.first_nonfinite_step < 0), state.step, state.first_nonfinite_step
        ),
    )


def eval_step(params: Params, batch: Batch, *, task: Task, axis_name: str | None = None) -> Sums:
    """Numerators and denominators of a batch's metrics without dropout, added over devices."""
    outputs = predict_step(params, batch, task=task)
    sums = {**task.numerators(outputs, batch), **task.denominators(batch)}
    return jax.lax.psum(sums, axis_name) if axis_name else sums


def predict_step(params: Params, batch: Batch, *, task: Task) -> Any:
    """The module's outputs for a batch, without dropout."""
    return task.module.apply({"params": params}, batch, deterministic=True)


def _accumulate(
    gradient: Callable[..., tuple[Params, Sums]],
    params: Params,
    batch: Batch,
    totals: Sums,
    key: jax.Array,
    accumulation_steps: int,
) -> tuple[Params, Sums]:
    """Gradient and numerators of the batch, added up over micro-batches.

    Each micro-batch's loss is its numerator over the *whole* batch's denominator, so that the sum
    of the gradients is the gradient of the batch.
    """
    if accumulation_steps == 1:
        return gradient(params, batch, totals, key)

    def add_micro_batch(carry: tuple[Params, Sums], i_and_rows: tuple) -> tuple[tuple[Params, Sums], None]:
        i, rows = i_and_rows
        part = gradient(params, rows, totals, jax.random.fold_in(key, i))
        return jax.tree.map(jnp.add, carry, part), None

    micro_batches = jax.tree.map(lambda x: _deal_rows(x, accumulation_steps), dict(batch))
    # Starting from zeros, not from the first micro-batch's gradient, compiles the gradient only once.
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(gradient, params, batch, totals, key))
    return jax.lax.scan(add_micro_batch, zeros, (jnp.arange(accumulation_steps), micro_batches))[0]


def _loss(
    task: Task, step_key: jax.Array, params: Params, batch: Batch, totals: Sums, key: jax.Array
) -> tuple[jax.Array, Sums]:
    params = _freeze(task, params)
    rngs = {"dropout": key, "sampling": step_key}
    outputs = task.module.apply({"params": params}, batch, deterministic=False, rngs=rngs)
    sums = task.numerators(outputs, batch)
    return task.loss(sums, totals), sums


def _rematerialized(loss: Callable[..., tuple[jax.Array, Sums]], remat: Remat) -> Callable:
    """The same function; unless `remat` is none, its gradient keeps only the layers' inputs."""
    if remat == "none":
        return loss
    return jax.checkpoint(loss, policy=jax.checkpoint_policies.save_only_these_names(LAYER_INPUT))


def _freeze(task: Task, params: Params) -> Params:
    """Stops gradients at frozen parameters, so that the backward pass below them costs nothing."""

    def stop(path: tuple, array: jax.Array) -> jax.Array:
        return array if task.learning_rate_scale(names_of(path)) else jax.lax.stop_gradient(array)

    return tree_map_with_path(stop, params)


def _scale_by_rate(task: Task, updates: Params) -> Params:
    """The updates, each multiplied by its parameter's `learning_rate_scale`."""

    def scale(path: tuple, update: jax.Array) -> jax.Array:
        factor = task.learning_rate_scale(names_of(path))
        return update if factor == 1 else update * factor

    return tree_map_with_path(scale, updates)


def _deal_rows(x: jax.Array, parts: int) -> jax.Array:
    # Rows are dealt out in turn, not in blocks: a device that holds a block of the batch then holds
    # its part of every micro-batch, and nothing moves between devices.
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)


def _replace_if(condition: jax.Array, make: Callable[[], T], old: T) -> T:
    """`make()`, a tree like `old`, if the condition holds; otherwise `old`."""

    def branch() -> T:
        return jax.lax.cond(condition, make, lambda: old)

    def choose() -> T:
        return jax.tree.map(functools.partial(jnp.where, condition), make(), old)

    # On CPU, choosing copies both moments before they are updated; a branch updates them in place. On TPU
    # the branch keeps the update from being fused, which costs 6 M cycles (estimate) for BERT-BASE.
    return jax.lax.platform_dependent(cpu=branch, default=choose)
