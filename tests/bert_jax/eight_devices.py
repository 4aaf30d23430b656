"""Two steps and an evaluation in every parallel mode, on eight devices that one CPU pretends to be.

A program of its own, because the number of devices is settled when jax starts:

    python -m tests.bert_jax.eight_devices OUTPUT.npz

writes `MODE/params/...`, `MODE/sums/...`, `MODE/evaluation/...`, `MODE/outputs/...` and some facts
of each mode, and `dropout/DEVICES/PRNG`, what dropout leaves of ones.
"""

import dataclasses
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # compiling is nearly all of the time

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from jax.sharding import NamedSharding

from bert_jax.config import Experiment, ParallelConfig
from bert_jax.model.dropout import Dropout
from bert_jax.parallel import Program, make_program
from bert_jax.pretraining import PretrainingTask
from bert_jax.sharding import BATCH_SPEC, make_mesh
from bert_jax.train_step import TrainState
from data_pipeline.config import DataConfig, Phase
from tests.bert_jax.tiny_model import TINY

ROWS, LENGTH, PREDICTIONS = 16, 12, 4
RATE = np.float32(1e-3)

EXPERIMENT = Experiment(
    model=dataclasses.replace(TINY, dropout_rate=0.0, attention_dropout_rate=0.0, initializer_range=0.3),
    data=DataConfig(phases=(Phase(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS),)),
    num_train_steps=4,
    global_batch_size=ROWS,
)

# Mode: (devices, how they are used).
MODES = {
    "one_device": (1, ParallelConfig()),
    "accumulated": (1, ParallelConfig(accumulation_steps=4)),
    "jit": (8, ParallelConfig()),
    "pmap": (8, ParallelConfig(mode="pmap")),
    "fsdp": (8, ParallelConfig(fsdp=4)),
    "tensor_accumulated": (8, ParallelConfig(fsdp=2, tensor=2, accumulation_steps=2)),
}
# Modes that an evaluation is compiled for as well.
EVALUATED = ("one_device", "jit", "pmap")


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
        batch = program.put(make_batch(9))
        trees["evaluation"] = program.eval_step(state.params, batch)
        trees["outputs"] = dict(zip(("mlm", "nsp"), program.predict_step(state.params, batch), strict=True))
    return {
        f"{mode}/shard_shape": np.array(table.addressable_shards[0].data.shape),
        f"{mode}/is_as_abstract": np.array(all(jax.tree.leaves(same))),
        **{f"{mode}/{name}": np.asarray(array) for name, array in flatten_dict(trees, sep="/").items()},
    }


def place(state: TrainState, program: Program) -> TrainState:
    """A copy of a state of host arrays where a program wants it; compiles nothing, unlike `init`."""
    return jax.tree.map(lambda x, leaf: jax.device_put(x, leaf.sharding), state, program.abstract_state())


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


def main(output: str) -> None:
    """Two steps in every mode; then once more, the first by pmap and the second by jit."""
    programs = {
        mode: make_program(
            PretrainingTask(EXPERIMENT.model),
            dataclasses.replace(EXPERIMENT, parallel=parallel),
            jax.devices()[:devices],
        )
        for mode, (devices, parallel) in MODES.items()
    }
    start = jax.device_get(programs["one_device"].init())
    steps = {mode: (program, program) for mode, program in programs.items()}
    steps["pmap_then_jit"] = (programs["pmap"], programs["jit"])
    arrays = {}
    for mode, (first, second) in steps.items():
        state = first.train_step(place(start, first), first.put(make_batch(0)), RATE)
        state = second.train_step(state, second.put(make_batch(1)), RATE)
        arrays |= record(mode, second, state)
    for prng in ("rbg", "threefry2x32"):
        for devices in (1, 8):
            arrays[f"dropout/{devices}/{prng}"] = drop(prng, jax.devices()[:devices])
    np.savez(output, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
