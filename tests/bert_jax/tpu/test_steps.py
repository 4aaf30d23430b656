"""Evaluation, prediction and the step by pmap compile for several chips, which use the attention kernel."""

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

TASK = PretrainingTask(MaskedLMAndNSP(), MODEL)
KERNEL_OPERAND = "bf16[8,2,64,128]"  # rows of a chip, heads, width of a head, length


def kernels(compiled: jax.stages.Compiled) -> list[str]:
    return [line for line in compiled.as_text().splitlines() if "tpu_custom_call" in line]


@pytest.mark.parametrize("step", ["eval_step", "predict_step"])
def test_every_chip_runs_the_kernel_on_its_rows(step: str) -> None:
    program = make_program(TASK, Experiment(model=MODEL), list(open_slice("v5e:2x2").devices))
    batch = TASK.abstract_batch(PHASE, rows=32, max_instances_per_row=1)
    (kernel,) = kernels(getattr(program, step).lower(program.abstract_state().params, batch).compile())
    assert KERNEL_OPERAND in kernel


def test_by_pmap_every_chip_trains_its_rows_by_the_kernel() -> None:
    experiment = Experiment(model=MODEL, parallel=ParallelConfig(mode="pmap"))
    program = make_program(TASK, experiment, list(open_slice("v5e:2x2").devices))
    batch = {
        name: jax.ShapeDtypeStruct((4, *rows.shape), rows.dtype)
        for name, rows in TASK.abstract_batch(PHASE, rows=8, max_instances_per_row=1).items()
    }
    # Forward and backward of the first layer. The last layer computes only the predicted positions' queries.
    forward, _ = kernels(program.lower_train_step(batch).compile())
    assert KERNEL_OPERAND in forward
