"""Two steps and an evaluation in every parallel mode, on eight devices that one CPU pretends to be.

A program of its own, because the number of devices is settled when jax starts:

    python -m tests.bert_jax.eight_devices OUTPUT.npz [MODE ...]

It writes these arrays:

    MODE/params, MODE/sums               the state after two steps
    MODE/evaluation, MODE/outputs        an evaluation with that state
    MODE/shard_shape, MODE/is_as_abstract
    MODE/packed                          params after fine-tuning on packed rows
    MODE/packed_pretraining              params and sums after a step of pretraining on packed rows
    MODE/given, MODE/grown               params of a model with fewer tokens, and of a run started from it
    one_device/drawn                     the same params of a new model
    dropout/DEVICES/PRNG                 an array of ones after dropout
    attention/KERNEL/DEVICES             the kernel's output with dropout, where all values are one
    rotation/DEVICES                     vectors rotated by the kernel
    pmap/dropout                         the loss of one row with dropout, on each device

Several processes that find each other by JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID
can run it together; each has its share of the devices.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable

from tests import compile_faster

os.environ.setdefault("JAX_NUM_PROCESSES", "1")
os.environ["JAX_PLATFORMS"] = "cpu"
# Compiling is nearly all of the time.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["XLA_FLAGS"] = (
    f"{compile_faster.XLA_FLAGS}"
    f" --xla_force_host_platform_device_count={8 // int(os.environ['JAX_NUM_PROCESSES'])}"
)

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import NamedSharding

from bert_jax.config import ParallelConfig
from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.mesh import BATCH_SPEC
from bert_jax.model.attention import attend_fused, attend_fused_on_gpu, attention_bias
from bert_jax.model.dropout import Dropout
from bert_jax.model.positions import rotate_by_kernel
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel import processes
from bert_jax.parallel.sharding import make_mesh
from bert_jax.task import Batch
from bert_jax.tasks.squad import Spans
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import TrainState
from bert_jax.training.warm_start import ROWS_OF_TOKENS, start_from
from data_pipeline.config import DataConfig, Phase
from data_pipeline.pretraining.batch_contract import SLOT_KEYS
from data_pipeline.tasks.finetuning.batches import training_batches
from data_pipeline.tasks.finetuning.packing import Packing
from tests.bert_jax.tasks.small_rows import make_rows
from tests.bert_jax.tiny_model import TINY

PROCESSES = int(os.environ["JAX_NUM_PROCESSES"])
ROWS, LENGTH, PREDICTIONS = 16, 12, 4
RATE = np.float32(1e-3)

EXPERIMENT = Experiment(
    # Four devices can split 36 word embeddings; eight split their width.
    model=dataclasses.replace(
        TINY, vocab_size=36, dropout_rate=0.0, attention_dropout_rate=0.0, initializer_range=0.3
    ),
    data=DataConfig(phases=(Phase(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS),)),
    num_train_steps=4,
    global_batch_size=ROWS,
)

# Mode -> (number of devices, how they are used).
MODES = {
    "one_device": (1, ParallelConfig()),
    "accumulated": (1, ParallelConfig(accumulation_steps=4)),
    "jit": (8, ParallelConfig()),
    "pmap": (8, ParallelConfig(mode="pmap")),
    "fsdp": (8, ParallelConfig(fsdp=8)),
    "tensor_accumulated": (8, ParallelConfig(fsdp=2, tensor=2, accumulation_steps=2)),
    "tensor_everywhere": (8, ParallelConfig(tensor=8)),
}
# Modes in which an evaluation is compiled as well.
EVALUATED = ("one_device", "jit", "pmap")
# Modes in which a run is also started from a model with fewer tokens.
GROWN = ("one_device", "pmap", "fsdp", "tensor_accumulated")
FEWER_TOKENS = 21
# Of the objective of these modes.
GROWING = [path for path in sorted(ROWS_OF_TOKENS) if path[0] in ("encoder", "language_model")]
# Modes in which packed rows are fine-tuned as well.
PACKED = ("one_device", "jit", "pmap")
# Modes in which packed rows are pretrained on as well.
PACKED_PRETRAINING = ("one_device", "pmap", "tensor_accumulated")
# Kernel -> the function, the length of its rows and the window.
KERNELS: dict[str, tuple[Callable[..., jax.Array], int, int | None]] = {
    "tpu": (attend_fused, 128, None),
    "tpu in a window": (functools.partial(attend_fused, window=64), 512, 64),
    "gpu": (attend_fused_on_gpu, 128, None),
}


def make_batch(seed: int) -> dict[str, np.ndarray]:
    """Rows with none to four predictions; the last two rows, one device's share, are padding."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, LENGTH + 1, (ROWS, 1))
    counts = random.integers(0, PREDICTIONS + 1, (ROWS, 1))
    lengths[-2:] = counts[-2:] = 0
    mask = (np.arange(LENGTH) < lengths).astype(np.int32)
    weights = (np.arange(PREDICTIONS) < counts).astype(np.float32)
    vocab_size = EXPERIMENT.model.vocab_size
    return {
        "input_ids": random.integers(0, vocab_size, mask.shape, dtype=np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(LENGTH) > 4).astype(np.int32) * mask,
        "masked_lm_positions": random.integers(0, 5, weights.shape, dtype=np.int32),
        "masked_lm_ids": random.integers(0, vocab_size, weights.shape, dtype=np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, ROWS, dtype=np.int32),
    }


def record(mode: str, program: Program, state: TrainState) -> dict[str, np.ndarray]:
    """Arrays of a state after its steps, and of an evaluation with it."""
    shapes = program.abstract_state()
    same = jax.tree.map(
        lambda a, b: (a.shape, a.dtype, a.sharding) == (b.shape, b.dtype, b.sharding), state, shapes
    )
    table = state.params["encoder"]["embeddings"]["word_embeddings"]["embedding"]
    trees = {"params": state.params, "sums": state.sums}
    if mode in EVALUATED:
        batch = put(program, 9)
        trees["evaluation"] = program.eval_step(state.params, batch)
        if PROCESSES == 1:
            outputs = program.predict_step(state.params, batch)
            trees["outputs"] = dict(zip(("mlm", "nsp"), outputs, strict=True))
    return {
        f"{mode}/shard_shape": np.array(table.addressable_shards[0].data.shape),
        f"{mode}/is_as_abstract": np.array(all(jax.tree.leaves(same))),
        **{f"{mode}/{name}": fetch(array) for name, array in flatten_dict(trees, sep="/").items()},
    }


def grow(mode: str, program: Program, start: TrainState) -> dict[str, np.ndarray]:
    """Params with a row for each token: of a model with fewer tokens, and of a run that starts from it."""
    given = {path: np.asarray(array) + 1 for path, array in flatten_dict(start.params).items()}
    given |= {path: given[path][:FEWER_TOKENS] for path in GROWING}
    state = start_from(program, unflatten_dict(given), GROWING)
    params = flatten_dict(state.params)
    places = flatten_dict(program.abstract_state().params)
    assert all(params[path].sharding == place.sharding for path, place in places.items())
    grown = {f"{mode}/grown/{'/'.join(path)}": fetch(params[path]) for path in sorted(GROWING)}
    return grown | {f"{mode}/given/{'/'.join(path)}": given[path] for path in GROWING}


def put(program: Program, seed: int, slots: int = PREDICTIONS) -> Batch:
    """A batch on the devices, with its first slots for predictions; this process supplies its own rows."""
    kept = np.concatenate([np.arange(start, stop) for start, stop in program.rows.ranges(ROWS)])
    batch = make_batch(seed)
    batch |= {name: batch[name][:, :slots] for name in SLOT_KEYS}
    return program.put({name: rows[kept] for name, rows in batch.items()})


def fetch(array: jax.Array) -> np.ndarray:
    """The whole array on the host, including the shards of other processes."""
    return np.asarray(array if array.is_fully_replicated else process_allgather(array, tiled=True))


def place(state: TrainState, program: Program) -> TrainState:
    """Copies a state of host arrays to a program's devices and shardings; compiles nothing, unlike `init`."""
    return jax.tree.map(
        lambda x, leaf: jax.make_array_from_callback(x.shape, leaf.sharding, lambda index: x[index]),
        state,
        program.abstract_state(),
    )


def drop(prng: str, devices: list[jax.Device]) -> np.ndarray:
    """What dropout at rate 0.5 leaves of a [16, 64] array of ones whose rows the devices share."""
    mesh = make_mesh(ParallelConfig(), devices)
    key = jax.random.key(0, impl=prng)

    def apply(x: jax.Array) -> jax.Array:
        return Dropout(0.5).apply({}, x, deterministic=False, rngs={"dropout": key})

    with jax.set_mesh(mesh):
        return np.asarray(
            jax.jit(apply)(jax.device_put(np.ones((ROWS, 64)), NamedSharding(mesh, BATCH_SPEC)))
        )


def losses_with_dropout(start: TrainState) -> np.ndarray:
    """For each device, the loss of one row in a pmap step in which all other devices get padding."""
    model = dataclasses.replace(EXPERIMENT.model, dropout_rate=0.5)
    parallel = ParallelConfig(mode="pmap")
    experiment = dataclasses.replace(EXPERIMENT, model=model, parallel=parallel, global_batch_size=8)
    program, batch = make_program(PretrainingTask(MaskedLMAndNSP(), model), experiment), make_batch(0)
    row, padding = batch["masked_lm_weights"].sum(axis=1).argmax(), -1

    def loss(device: int) -> float:
        rows = np.where(np.arange(8) == device, row, padding)
        own = program.put({name: x[rows] for name, x in batch.items()})
        return float(program.train_step(place(start, program), own, RATE).sums["mlm_loss"])

    return np.array([loss(device) for device in range(8)])


def attend(devices: list[jax.Device], kernel: str) -> np.ndarray:
    """A kernel's attention with dropout; on several devices the tensor axis of the mesh is 2."""
    attention, length, window = KERNELS[kernel]
    mesh = make_mesh(ParallelConfig(tensor=min(len(devices), 2)), devices)
    shapes = 3 * (((ROWS, length, 2, 16), (2, 16)),)
    projections = jax.tree.map(lambda shape: np.ones(shape, np.float32), shapes, is_leaf=_is_shape)
    bias = attention_bias(ModelConfig(attention_window=window), np.ones((ROWS, length), np.int32))
    fused = functools.partial(attention, key=jax.random.key(0), rate=0.5, interpret=True)
    with jax.set_mesh(mesh):
        return np.asarray(jax.jit(fused)(projections, bias))


def rotate(devices: list[jax.Device]) -> np.ndarray:
    """Vectors rotated as in packed rows; on several devices the tensor axis of the mesh is 2."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(ROWS, 128, 2, 32)).astype(np.float32)
    angles = random.normal(size=(ROWS, 128, 16)).astype(np.float32)
    with jax.set_mesh(make_mesh(ParallelConfig(tensor=min(len(devices), 2)), devices)):
        rotated = jax.jit(functools.partial(rotate_by_kernel, interpret=True))
        return np.asarray(rotated(vectors, np.cos(angles), np.sin(angles)))


def _is_shape(tree: object) -> bool:
    return isinstance(tree, tuple) and isinstance(tree[0], int)


def fine_tune(parallel: ParallelConfig, devices: list[jax.Device]) -> dict[str, np.ndarray]:
    """Parameters after a step on packed rows."""
    config = FineTuningConfig(model=EXPERIMENT.model, global_batch_size=ROWS, parallel=parallel)
    program = make_program(Spans(config), config, devices)
    rows, packing = make_rows("spans"), Packing(length=24, max_rows=4, unit=8)
    order = {"batch_size": ROWS, "seed": 0, "first_step": 0, "num_steps": 1}
    (batch,) = training_batches(rows, **order, packing=packing)
    state = program.train_step(program.init(), program.put(batch), RATE)
    return {name: fetch(array) for name, array in flatten_dict(state.params, sep="/").items()}


def pretrain_packed(start: TrainState, program: Program) -> dict[str, np.ndarray]:
    """Parameters and sums after a step on rows of two instances, or one."""
    batch, second = make_batch(3), LENGTH // 2
    starts = np.zeros((ROWS, 2), np.int32)
    starts[:, 1] = np.where((batch["input_mask"][:, second] > 0) & (np.arange(ROWS) % 4 > 0), second, 0)
    labels = np.random.default_rng(4).integers(0, 2, starts.shape, dtype=np.int32)
    labels[:, 1] *= starts[:, 1] > 0
    batch |= {"instance_starts": starts, "next_sentence_labels": labels}
    state = program.train_step(place(start, program), program.put(batch), RATE)
    trees = {"params": state.params, "sums": state.sums}
    return {name: fetch(array) for name, array in flatten_dict(trees, sep="/").items()}


def main(output: str, *wanted: str) -> None:
    """Runs two steps in every mode, or in those wanted; pmap_then_jit does one in pmap and one in jit."""
    if PROCESSES > 1:
        processes.start()
    programs = {
        mode: make_program(
            PretrainingTask(MaskedLMAndNSP(), EXPERIMENT.model),
            dataclasses.replace(EXPERIMENT, parallel=parallel),
            jax.devices() if devices == 8 else jax.local_devices()[:devices],
        )
        for mode, (devices, parallel) in MODES.items()
    }
    start = jax.device_get(programs["one_device"].init())
    steps = {mode: (program, program) for mode, program in programs.items()}
    steps["pmap_then_jit"] = (programs["pmap"], programs["jit"])
    arrays = {}
    for mode in wanted or steps:
        first, second = steps[mode]
        state = first.train_step(place(start, first), put(first, 0), RATE)
        state = second.train_step(state, put(second, 1), RATE)
        arrays |= record(mode, second, state)
        if mode in GROWN:
            arrays |= grow(mode, second, start)
    for path in GROWING:
        arrays[f"one_device/drawn/{'/'.join(path)}"] = flatten_dict(start.params)[path]
    if PROCESSES == 1 and not wanted:
        for prng in ("rbg", "threefry2x32"):
            for devices in (1, 8):
                arrays[f"dropout/{devices}/{prng}"] = drop(prng, jax.devices()[:devices])
        for devices in (1, 8):
            for kernel in KERNELS:
                arrays[f"attention/{kernel}/{devices}"] = attend(jax.devices()[:devices], kernel)
            arrays[f"rotation/{devices}"] = rotate(jax.devices()[:devices])
        arrays["pmap/dropout"] = losses_with_dropout(start)
        for mode in PACKED:
            devices, parallel = MODES[mode]
            params = fine_tune(parallel, jax.devices()[:devices])
            arrays |= {f"{mode}/packed/{name}": array for name, array in params.items()}
        for mode in PACKED_PRETRAINING:
            found = pretrain_packed(start, programs[mode])
            arrays |= {f"{mode}/packed_pretraining/{name}": array for name, array in found.items()}
    if processes.is_first():
        np.savez(output, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
