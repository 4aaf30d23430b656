"""A step of every objective and encoder in some parallel modes, on the devices of `eight_devices`.

    python -m tests.bert_jax.objectives_on_eight_devices OUTPUT.npz

It writes, for each of `encoders.MODES_OF_CASES`:

    MODE/OBJECTIVE/ENCODER/params    params after a step with Muon
    MODE/OBJECTIVE/ENCODER/resumed   whether the step after is the same, to the bit, from a checkpoint
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
from bert_jax.training.program import make_program
from tests.bert_jax.encoders import ENCODERS, MODES_OF_CASES


def learn(
    objective: str, encoder: str, parallel: ParallelConfig, devices: list[jax.Device]
) -> dict[str, np.ndarray]:
    """Parameters of two layers after a step with a z-loss; whether the next is the same from a checkpoint.

    The first step has the slots of the first phase that the objective asks for.
    """
    model = dataclasses.replace(EXPERIMENT.model, num_layers=2, **ENCODERS[encoder])
    optimizer = OptimizerConfig(name="muon")
    experiment = dataclasses.replace(EXPERIMENT, model=model, optimizer=optimizer, parallel=parallel)
    experiment = experiment.with_objective(OBJECTIVES[objective](z_loss=0.1))
    program = make_program(PretrainingTask(experiment.objective, experiment.model), experiment, devices)
    stages = experiment.data.phases[0].max_predictions_per_seq, PREDICTIONS
    first, second = (put(program, seed, slots) for seed, slots in enumerate(stages))
    state = program.train_step(program.init(), first, RATE)
    params = flatten_dict(jax.tree.map(fetch, state.params), sep="/")
    arrays = {f"params/{name}": array for name, array in params.items()}
    with tempfile.TemporaryDirectory() as directory:
        with contextlib.closing(Checkpoints(Path(directory), Kept(1), print)) as checkpoints:
            checkpoints.save(1, state)
        with contextlib.closing(Checkpoints(Path(directory), Kept(1), print)) as checkpoints:
            restored = checkpoints.restore_newest(program.abstract_state())
    after, resumed = (
        jax.tree.leaves(jax.device_get(program.train_step(begun, second, RATE)))
        for begun in (state, restored)
    )
    return arrays | {"resumed": np.array(all(map(np.array_equal, after, resumed)))}


def main(output: str) -> None:
    arrays = {}
    for mode, objective, encoder in MODES_OF_CASES:
        devices, parallel = MODES[mode]
        learnt = learn(objective, encoder, parallel, jax.devices()[:devices])
        arrays |= {f"{mode}/{objective}/{encoder}/{name}": array for name, array in learnt.items()}
    np.savez(output, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
