"""Chooses how rows of a fine-tuning task share lines of training batches, for the devices at hand."""

import math
from collections.abc import Sequence

import jax

from bert_jax.model.size import encoder_flops
from bert_jax.model_config import ModelConfig
from bert_jax.tasks.finetuning.head import Head
from data_pipeline.tasks.finetuning.packing import Packing, choose_packing
from data_pipeline.tasks.finetuning.rows import Rows

# Operations in the time it takes to compile a step: 10 s of a CPU, one minute of each accelerator.
_CPU_FLOPS_WHILE_COMPILING = 1e12
_ACCELERATOR_FLOPS_WHILE_COMPILING = 5e15
# Length of training that the cost of compiling is weighed against: the paper's usual one, not that of this
# trial or grid, so that a trial has the same batches, and the same result, alone and beside any others.
_EPOCHS = 3


def find_packing(head: Head, rows: Rows, lengths: Sequence[int]) -> Packing | None:
    """How rows share lines of training batches on the devices at hand; None if each has its own line.

    This depends on the model, batch size and layout of the configuration alone, so that trials with other
    learning rates, epochs and seeds share their shapes.

    Args:
      rows: the training set.
      lengths: as `choose_packing`.
    """
    if not head.may_pack:
        return None
    config = head.config
    return choose_packing(
        rows,
        config.global_batch_size,
        lengths,
        num_steps=math.ceil(_EPOCHS * len(rows) / config.global_batch_size),
        unit=config.parallel.batch_unit(jax.device_count()),
        compiling=_positions_while_compiling(config.model),
    )


def _positions_while_compiling(model: ModelConfig) -> float:
    """Number of positions that all devices together could train on while a step is compiled."""
    is_cpu = jax.default_backend() == "cpu"
    flops = _CPU_FLOPS_WHILE_COMPILING if is_cpu else _ACCELERATOR_FLOPS_WHILE_COMPILING * jax.device_count()
    return flops / encoder_flops(model, length=1)
