"""A run goes on from its checkpoint bit for bit, with each optimizer.

`test_program_of_objectives.py` has every objective and encoder, on eight devices.
"""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.config import OptimizerConfig
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.retention import Kept
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.program import make_program
from data_pipeline.config import DataConfig, Phase
from tests.bert_jax.encoders import ENCODERS
from tests.bert_jax.model.test_packed_rows import LENGTH, SLOTS, make_batches
from tests.bert_jax.tiny_model import TINY

OPTIMIZERS = {
    "adamw": OptimizerConfig(),
    "lamb": OptimizerConfig("lamb", bias_correction="adam"),
    "stable_adamw": OptimizerConfig("stable_adamw", bias_correction="adam"),
    "muon": OptimizerConfig("muon"),
    "bfloat16": OptimizerConfig("muon", moment_dtype="bfloat16"),
}


@pytest.mark.parametrize(
    ("objective", "encoder", "optimizer"),
    [
        ("mlm_nsp", "bert", "adamw"),
        ("mlm_nsp", "bert", "bfloat16"),
        pytest.param("mlm_nsp", "modern", "muon", marks=pytest.mark.slow),
        # `test_program_of_objectives.py` resumes every objective and encoder on eight devices.
        pytest.param("rtd", "albert_pre", "adamw", marks=pytest.mark.slow),
        pytest.param("mlm_nsp", "modern", "lamb", marks=pytest.mark.slow),
        pytest.param("mlm_nsp", "modern", "stable_adamw", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_changes_no_bit(objective: str, encoder: str, optimizer: str, tmp_path: Path) -> None:
    phase = Phase(max_seq_length=LENGTH, max_predictions_per_seq=SLOTS)
    experiment = Experiment(
        model=dataclasses.replace(TINY, **ENCODERS[encoder]),
        data=DataConfig(phases=(phase,)),
        optimizer=OPTIMIZERS[optimizer],
        num_train_steps=4,
        global_batch_size=4,
    ).with_objective(OBJECTIVES[objective]())
    program = make_program(PretrainingTask(experiment.objective, experiment.model), experiment)
    batch = program.put(make_batches()[1])
    checkpoints = Checkpoints(tmp_path, Kept(1))

    state, states = program.init(), []
    for step in range(4):
        if step == 2:
            checkpoints.save(2, state)
        state = program.train_step(state, batch, np.float32(1e-2))
        states.append(jax.device_get(state))
    embeddings = (s.params["encoder"]["embeddings"]["word_embeddings"]["embedding"] for s in states[2:])
    assert not np.array_equal(*embeddings)

    checkpoints.close()
    checkpoints = Checkpoints(tmp_path, Kept(1))
    resumed = checkpoints.restore_newest(program.abstract_state())
    checkpoints.close()
    assert resumed is not None
    for _ in range(2):
        resumed = program.train_step(resumed, batch, np.float32(1e-2))
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(resumed), states[-1])
