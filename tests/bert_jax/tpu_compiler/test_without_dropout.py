"""Evaluation and prediction compile for several chips, the attention kernel among them."""

import pytest

from bert_jax.config import Experiment
from bert_jax.pretraining.task import PretrainingTask, abstract_batch
from bert_jax.tpu_compiler.topology import open_slice
from bert_jax.training.program import make_program
from tests.bert_jax.tpu_compiler.small_step import MODEL, PHASE

pytestmark = pytest.mark.tpu


@pytest.mark.parametrize("step", ["eval_step", "predict_step"])
def test_every_chip_runs_the_kernel_on_its_rows(step: str) -> None:
    devices = list(open_slice("v5e:2x2").devices)
    program = make_program(PretrainingTask(MODEL), Experiment(model=MODEL), devices)
    shapes = program.abstract_state().params, abstract_batch(PHASE, rows=32, max_instances_per_row=1)
    compiled = getattr(program, step).lower(*shapes).compile().as_text()
    rows, heads, head_width = 8, 2, 64
    (kernel,) = [line for line in compiled.splitlines() if "tpu_custom_call" in line]
    assert f"bf16[{rows},{heads},{head_width},128]" in kernel
