"""A step by pmap compiles for several chips, with the attention kernel."""

import jax
import pytest

from bert_jax.config import ParallelConfig
from bert_jax.objectives import MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.tpu.topology import open_slice
from bert_jax.training.program import make_program
from tests.bert_jax.tpu.small_step import MODEL, PHASE

pytestmark = pytest.mark.tpu


def test_every_chip_trains_its_rows_by_the_kernel() -> None:
    devices = list(open_slice("v5e:2x2").devices)
    experiment = Experiment(model=MODEL, parallel=ParallelConfig(mode="pmap"))
    task = PretrainingTask(MaskedLMAndNSP(), MODEL)
    program = make_program(task, experiment, devices)
    batch = {
        name: jax.ShapeDtypeStruct((4, *rows.shape), rows.dtype)
        for name, rows in task.abstract_batch(PHASE, rows=8, max_instances_per_row=1).items()
    }
    compiled = program.lower_train_step(batch).compile().as_text()
    rows, heads, head_width = 8, 2, 64
    # Forward and backward of the first layer. The last layer computes only the predicted positions' queries.
    forward, _ = [line for line in compiled.splitlines() if "tpu_custom_call" in line]
    assert f"bf16[{rows},{heads},{head_width},128]" in forward
