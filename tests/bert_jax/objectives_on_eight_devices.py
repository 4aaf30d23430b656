"""A step of every objective and encoder in some parallel modes, on the devices of `eight_devices`.

    python -m tests.bert_jax.objectives_on_eight_devices OUTPUT.npz

It writes these arrays:

    MODE/OBJECTIVE/ENCODER/params    params after a step with Muon, for each of `encoders.MODES_OF_CASES`
    MODE/OBJECTIVE/ENCODER/sums      the sums of that step, and the norm of its gradient
    MODE/OBJECTIVE/ENCODER/resumed   whether the step after is the same, to the bit, from a checkpoint, for
                                     each of `encoders.RESUMED_CASES`
"""

import contextlib
import dataclasses
import sys
import tempfile
from pathlib import Path

# First, since it settles the number of devices before jax is imported.
from tests.bert_jax.eight_devices import EXPERIMENT, MODES, PREDICTIONS, RATE, fetch, put  # isort: skip

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.config import OptimizerConfig, ParallelConfig
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.task import PretrainingTask
from bert_jax.retention import Kept
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import TrainState
from tests.bert_jax.encoders import ENCODERS, MODES_OF_CASES, RESUMED_CASES


def learn(
    objective: str, encoder: str, parallel: ParallelConfig, devices: list[jax.Device]
) -> tuple[Program, TrainState]:
    """A program with a z-loss, and its state after a step with the objective's own slots.

    Encoders have two layers, since some differ from layer to layer; objectives on the plain one need one.
    """
    num_layers = 1 if encoder == "bert" else 2
    model = dataclasses.replace(EXPERIMENT.model, num_layers=num_layers, **ENCODERS[encoder])
    optimizer = OptimizerConfig(name="muon")
    experiment = dataclasses.replace(EXPERIMENT, model=model, optimizer=optimizer, parallel=parallel)
    experiment = experiment.with_objective(OBJECTIVES[objective](z_loss=0.1))
    program = make_program(PretrainingTask(experiment.objective, experiment.model), experiment, devices)
    slots = experiment.data.phases[0].max_predictions_per_seq
    return program, program.train_step(program.init(), put(program, 0, slots), RATE)


def resumes(program: Program, state: TrainState) -> bool:
    """Whether the next step, which may have another number of slots, is the same from a checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        with contextlib.closing(Checkpoints(Path(directory), Kept(1))) as checkpoints:
            checkpoints.save(1, state)
        with contextlib.closing(Checkpoints(Path(directory), Kept(1))) as checkpoints:
            restored = checkpoints.restore_newest(program.abstract_state())
    batch = put(program, 1, PREDICTIONS)
    after, resumed = (
        jax.tree.leaves(jax.device_get(program.train_step(begun, batch, RATE))) for begun in (state, restored)
    )
    return all(map(np.array_equal, after, resumed))


def main(output: str) -> None:
    arrays = {}
    for case in MODES_OF_CASES:
        mode, objective, encoder = case
        devices, parallel = MODES[mode]
        program, state = learn(objective, encoder, parallel, jax.devices()[:devices])
        trees = {"params": state.params, "sums": state.sums}
        flat = flatten_dict(jax.tree.map(fetch, trees), sep="/")
        arrays |= {"/".join((*case, name)): array for name, array in flat.items()}
        if case in RESUMED_CASES:
            arrays["/".join((*case, "resumed"))] = np.array(resumes(program, state))
    np.savez(output, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
