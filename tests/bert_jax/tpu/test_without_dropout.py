"""Evaluation and prediction compile for several chips, the attention kernel among them."""

import pytest

from bert_jax.objectives import MaskedLMAndNSP
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.tpu.topology import open_slice
from bert_jax.training.program import make_program
from tests.bert_jax.tpu.small_step import MODEL, PHASE

pytestmark = pytest.mark.tpu


@pytest.mark.parametrize("step", ["eval_step", "predict_step"])
def test_every_chip_runs_the_kernel_on_its_rows(step: str) -> None:
    devices = list(open_slice("v5e:2x2").devices)
    task = PretrainingTask(MaskedLMAndNSP(), MODEL)
    program = make_program(task, Experiment(model=MODEL), devices)
    shapes = (
        program.abstract_state().params,
        task.abstract_batch(PHASE, rows=32, max_instances_per_row=1),
    )
    compiled = getattr(program, step).lower(*shapes).compile().as_text()
    rows, heads, head_width = 8, 2, 64
    (kernel,) = [line for line in compiled.splitlines() if "tpu_custom_call" in line]
    assert f"bf16[{rows},{heads},{head_width},128]" in kernel
