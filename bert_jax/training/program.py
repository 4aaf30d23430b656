"""Compiles the pure step for the devices at hand: by jit over a mesh, or by pmap.

Both kinds of program take and return the same global state, so a run may switch between them when
it resumes from a checkpoint.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.config import RunConfig
from bert_jax.mesh import BATCH_SPEC
from bert_jax.parallel import processes
from bert_jax.parallel.compiler_memory import give_back_after_compiling
from bert_jax.parallel.sharding import BatchRows, make_mesh, split_rows, state_sharding
from bert_jax.task import Batch, Sums, Task
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.train_step import Params, TrainState, eval_step, init_state, predict_step, train_step

NumpyBatch = Mapping[str, np.ndarray]

_PMAP_AXIS = "devices"
_ANY_SEED = np.uint32(0)

COMPILER_OPTIONS: dict[str, dict[str, bool | int]] = {
    # XLA's CPU compiler stops at 256-bit vectors unless asked, and orders operations for concurrency
    # at the price of memory. Measured with benchmarks/train_step.py.
    "cpu": {
        "xla_cpu_prefer_vector_width": 512,
        "xla_cpu_enable_concurrency_optimized_scheduler": False,
    },
    # Otherwise an embedding's gradient is summed in the order in which threads finish, and kernels for
    # matrix products are chosen by timing them.
    "gpu": {"xla_gpu_deterministic_ops": True},
    # With parallel.fsdp, the compiler cuts products of gathered weights and of scattered gradients into
    # pieces, each computed while another is on its way. By its own estimates the pieces cost BERT more than
    # waiting (docs/results.md).
    "tpu": {
        "xla_tpu_enable_windowed_einsum_for_all_gather": False,
        "xla_tpu_enable_windowed_einsum_for_reduce_scatter": False,
    },
    # Weights are gathered beside the products before theirs. On v5e that is the default; by the estimates it
    # pays on v6e, and not on v5p.
    "TPU v6 lite": {
        "xla_enable_async_all_gather": True,
        "xla_tpu_enable_async_collective_fusion": True,
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather": True,
    },
}
"""XLA's options by platform and by kind of device, for mode jit; jax.pmap takes none."""


def compiler_options(device: jax.Device) -> dict[str, bool | int]:
    """The options for a device but for those that the user's environment names, which jax would overrule."""
    flags = [flag for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") for flag in os.environ.get(name, "").split()]
    named = {flag.lstrip("-").partition("=")[0] for flag in flags}
    options = COMPILER_OPTIONS.get(device.platform, {}) | COMPILER_OPTIONS.get(device.device_kind, {})
    return {name: value for name, value in options.items() if name not in named}


T = TypeVar("T", bound=Task)
R = TypeVar("R", bound=RunConfig)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Program(Generic[T, R]):
    """A task compiled for some devices: makes a state, advances it, evaluates it and predicts."""

    task: T
    """What it learns."""
    run: R
    """Its settings."""
    devices: list[jax.Device]
    """The devices it runs on, those of other processes included."""
    rows: BatchRows
    """The rows of a batch that this process makes."""
    shardings: TrainState
    """Where each array of the state lives."""
    compiled_init: Callable[[np.uint32], TrainState]
    """Seed -> the state at step 0."""
    compiled_step: jax.stages.Wrapped
    """(state, device batch, learning rate, dropout key) -> the next state, before `finish_step`."""
    finish_step: Callable[[TrainState], TrainState] = lambda state: state
    """What `compiled_step` returns -> the global state."""
    eval_step: Callable[[Params, Batch], Sums]
    """(params, device batch) -> sums of metrics, replicated."""
    predict_step: Callable[[Params, Batch], Any]
    """(params, device batch) -> the module's outputs."""
    put: Callable[[NumpyBatch], Batch]
    """Spreads the rows of a batch of host arrays over the devices; each process passes its own `rows`."""

    def with_run(self, run: R) -> "Program[T, R]":
        """The same compiled steps for a run with another seed, schedule or cadence.

        The optimizer's other settings, the batch sizes and the parallel mode must be the same.
        """
        return dataclasses.replace(self, run=run)

    def init(self) -> TrainState:
        """The state at step 0, on the devices."""
        return self.compiled_init(np.uint32(self.run.seed))

    def init_without(self, paths: Collection[tuple[str, ...]]) -> TrainState:
        """The state at step 0 without the parameters at `paths`, which are not even drawn."""

        def rest(state: TrainState) -> TrainState:
            params = flatten_dict(state.params)
            kept = {path: value for path, value in params.items() if path not in paths}
            return state.replace(params=unflatten_dict(kept))  # type: ignore[attr-defined]

        init = jax.jit(lambda seed: rest(self.compiled_init(seed)), out_shardings=rest(self.shardings))
        return init(np.uint32(self.run.seed))

    def train_step(self, state: TrainState, batch: Batch, learning_rate: jax.typing.ArrayLike) -> TrainState:
        """The state after one more step. `state` must not be used afterwards."""
        return self.finish_step(self.compiled_step(state, batch, learning_rate, self._key))

    def lower_train_step(self, batch: Batch | Mapping[str, jax.ShapeDtypeStruct]) -> jax.stages.Lowered:
        """The step lowered for a batch, ready to be compiled. The batch may be given as shapes, which also
        works for devices that are not present."""
        learning_rate = jax.ShapeDtypeStruct((), np.float32)
        return self.compiled_step.lower(self.abstract_state(), batch, learning_rate, self._key)

    def flops(self, batch: Batch) -> int:
        """Floating-point operations of training on a batch, in all processes together."""
        # pmap is given host arrays, the rows of this process alone.
        parts = 1 if isinstance(batch["input_ids"], jax.Array) else processes.count()
        return parts * self.task.flops(batch)

    def put_params(self, params: Any) -> Params:
        """Puts parameters from the host on the devices, sharded like the program's own."""
        places = self.abstract_state().params
        return jax.tree.map(lambda value, place: jax.device_put(value, place.sharding), params, places)

    def abstract_state(self) -> TrainState:
        """Shapes, types and shardings of a state, for restoring one from a checkpoint."""
        shapes = jax.eval_shape(self.init)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            shapes,
            self.shardings,
        )

    def reset_sums(self, state: TrainState) -> TrainState:
        """The state with its running sums at zero."""
        zeros = jax.tree.map(
            lambda place: jax.make_array_from_callback((), place, lambda _: np.zeros([], np.float32)),
            self.shardings.sums,
        )
        return state.replace(sums=zeros)  # type: ignore[attr-defined]

    @functools.cached_property
    def _key(self) -> jax.Array:
        """The key of dropout."""
        return jax.random.key(self.run.seed, impl=self.run.parallel.prng)


def make_program(task: T, run: R, devices: list[jax.Device] | None = None) -> Program[T, R]:
    """A program on these devices or all; nothing is compiled until a step is first called with some shape.

    Raises:
      UserError: the batch does not divide by devices x accumulation steps, or the mesh does not
        fit the devices.
    """
    devices = jax.devices() if devices is None else devices
    run.check_devices(len(devices))
    give_back_after_compiling()
    if run.parallel.mode == "pmap":
        return _make_pmap_program(task, run, devices)
    return _make_jit_program(task, run, devices)


def _pure_functions(task: Task, run: RunConfig) -> tuple[functools.partial, ...]:
    """(init, train step, eval step, predict step), not yet compiled."""
    tx = make_optimizer(run.optimizer)
    init = functools.partial(init_state, task, tx)
    step = functools.partial(
        train_step,
        task=task,
        tx=tx,
        accumulation_steps=run.parallel.accumulation_steps,
        remat=run.parallel.remat,
    )
    return init, step, functools.partial(eval_step, task=task), functools.partial(predict_step, task=task)


def _make_jit_program(task: T, run: R, devices: list[jax.Device]) -> Program[T, R]:
    mesh = make_mesh(run.parallel, devices)
    init, step, evaluate, predict = _pure_functions(task, run)
    shardings = state_sharding(mesh, jax.eval_shape(init, _ANY_SEED))
    rows, everywhere = NamedSharding(mesh, BATCH_SPEC), NamedSharding(mesh, PartitionSpec())
    compiled = functools.partial(jax.jit, compiler_options=compiler_options(devices[0]))
    batch_rows = BatchRows(rows)
    places = (shardings, rows, everywhere, everywhere)
    return Program(
        task=task,
        run=run,
        devices=devices,
        rows=batch_rows,
        shardings=shardings,
        compiled_init=jax.jit(init, out_shardings=shardings),
        compiled_step=compiled(
            _within(mesh, step), in_shardings=places, out_shardings=shardings, donate_argnums=0
        ),
        eval_step=compiled(
            _within(mesh, evaluate), in_shardings=(shardings.params, rows), out_shardings=everywhere
        ),
        predict_step=compiled(
            _within(mesh, predict), in_shardings=(shardings.params, rows), out_shardings=rows
        ),
        put=batch_rows.put,
    )


def _within(mesh: Mesh, function: functools.partial) -> Callable:
    """The function, traced where `bert_jax.mesh.mesh_in_use` gives the mesh."""

    def traced(*args: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*args)

    traced.__name__ = function.func.__name__  # what jax calls it in logs and profiles
    return traced


def _make_pmap_program(task: T, run: R, devices: list[jax.Device]) -> Program[T, R]:
    """Data parallelism alone: each device holds the whole state and its rows of the batch."""
    # The same mesh as that of pmap's results; with another one the second step would compile again.
    mesh = Mesh(np.array(devices), (_PMAP_AXIS,), axis_types=(AxisType.Auto,))
    init, step, evaluate, predict = _pure_functions(task, run)
    everywhere = NamedSharding(mesh, PartitionSpec())
    shardings = jax.tree.map(lambda _: everywhere, jax.eval_shape(init, _ANY_SEED))
    # in_axes and out_axes of None keep the state free of a device axis, as under jit.
    compiled = functools.partial(jax.pmap, axis_name=_PMAP_AXIS, devices=devices)
    outputs = compiled(predict, in_axes=(None, 0))
    rows = BatchRows(NamedSharding(mesh, PartitionSpec(_PMAP_AXIS)))
    return Program(
        task=task,
        run=run,
        devices=devices,
        rows=rows,
        shardings=shardings,
        compiled_init=jax.jit(init, out_shardings=shardings),
        compiled_step=compiled(
            functools.partial(step, axis_name=_PMAP_AXIS), in_axes=(None, 0, None, None), out_axes=None
        ),
        finish_step=lambda state: _join_processes(state, shardings),
        eval_step=compiled(
            functools.partial(evaluate, axis_name=_PMAP_AXIS), in_axes=(None, 0), out_axes=None
        ),
        predict_step=lambda params, batch: jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), outputs(params, batch)
        ),
        # pmap takes host arrays and sends each device of this process its part.
        put=lambda batch: jax.tree.map(lambda x: split_rows(x, rows.num_blocks_here), dict(batch)),
    )


def _join_processes(state: TrainState, shardings: TrainState) -> TrainState:
    """One global state made of the copies that pmap leaves in each process; moves no data."""
    if shardings.step.is_fully_addressable:
        return state

    def join(copy: jax.Array, place: NamedSharding) -> jax.Array:
        parts = [shard.data for shard in copy.addressable_shards]
        return jax.make_array_from_single_device_arrays(copy.shape, place, parts)

    return jax.tree.map(join, state, shardings)
