"""What the training loop needs for a cell of a grid: its configuration, checked, and its compiled program."""

import dataclasses
import math

import jax

from bert_jax.finetuning.config import Cell, FineTuningConfig, make_optimizer_config
from bert_jax.finetuning.tasks import make_task
from bert_jax.training.program import Program, make_program
from data_pipeline.errors import UserError

# Enough rows of metrics for a curve, however short the run.
_ROWS_A_RUN = 20
# At most so far apart, since an epoch may take hours, which a power cut would lose.
_STEPS_A_CHECKPOINT = 1000


def cell_config(base: FineTuningConfig, cell: Cell, num_rows: int) -> FineTuningConfig:
    """The configuration of one cell, given the number of training rows."""
    steps = max(1, math.ceil(num_rows * cell.epochs / cell.batch_size))
    steps_an_epoch = max(1, math.ceil(steps / cell.epochs))
    return dataclasses.replace(
        base,
        optimizer=make_optimizer_config(base, cell, steps),
        num_train_steps=steps,
        global_batch_size=cell.batch_size,
        seed=cell.seed,
        log_every=max(1, steps // _ROWS_A_RUN),
        eval_every=steps_an_epoch,
        checkpoint_every=min(steps_an_epoch, _STEPS_A_CHECKPOINT),
        keep_checkpoints=1,
    )


def check_negatives(config: FineTuningConfig, sequences_per_row: int) -> None:
    """Raises UserError if in-batch ranking would have no negatives to learn from.

    Args:
      sequences_per_row: sequences of a training row; 2 if it has no negative.
    """
    parallel = config.parallel
    parts = jax.device_count() if parallel.mode == "pmap" else 1
    parts *= parallel.accumulation_steps
    if config.rows_compete and sequences_per_row == 2 and config.global_batch_size < 2 * parts:
        raise UserError(
            f"the batch size is {config.global_batch_size}; in_batch without negatives needs two rows or "
            f"more that are computed together, so make it {2 * parts} or more, or give --negative-column"
        )


class Programs:
    """Compiled programs, shared by configurations that differ only in learning rate, length or seed."""

    def __init__(self) -> None:
        self._made: dict[FineTuningConfig, Program] = {}

    def get(self, config: FineTuningConfig) -> Program:
        """The program of a configuration."""
        shared = dataclasses.replace(
            config,
            optimizer=dataclasses.replace(config.optimizer, learning_rate=1.0, warmup_steps=0),
            num_train_steps=1,
            seed=0,
            log_every=1,
            eval_every=1,
            checkpoint_every=1,
        )
        if shared not in self._made:
            self._made[shared] = make_program(make_task(config), shared)
        return self._made[shared].with_run(config)
