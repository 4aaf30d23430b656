"""What the training loop needs for a trial: its configuration and its compiled program."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

from bert_jax.finetuning_config import FineTuningConfig, Trial
from bert_jax.tasks.finetuning.head import Head
from bert_jax.training.program import Program, make_program

# Enough rows of metrics for a curve, however short the run.
_ROWS_A_RUN = 20
# At most so far apart, since an epoch may take hours, which a power cut would lose.
_STEPS_A_CHECKPOINT = 1000


def trial_config(base: FineTuningConfig, trial: Trial, num_rows: int) -> FineTuningConfig:
    """The configuration of one trial, given the number of training rows."""
    epochs = Fraction(str(trial.epochs))  # 110 rows x 1.1 epochs / 11 is 11, and in floats a little more
    steps = max(1, math.ceil(num_rows * epochs / trial.batch_size))
    steps_an_epoch = max(1, math.ceil(steps / epochs))
    layers = base.features.layers if trial.layer is None else (trial.layer,)
    return dataclasses.replace(
        base,
        features=dataclasses.replace(base.features, layers=layers),
        optimizer=dataclasses.replace(
            base.optimizer,
            learning_rate=trial.learning_rate,
            warmup_steps=int(steps * base.warmup_proportion),
        ),
        num_train_steps=steps,
        global_batch_size=trial.batch_size,
        seed=trial.seed,
        log_every=math.ceil(steps / _ROWS_A_RUN),
        eval_every=steps_an_epoch,
        checkpoint_every=min(steps_an_epoch, _STEPS_A_CHECKPOINT),
        keep_checkpoints=1,
    )


class Programs:
    """Compiled programs, shared by configurations that differ only in learning rate, length or seed."""

    def __init__(self, make_head: Callable[[FineTuningConfig], Head]) -> None:
        self._make_head = make_head
        self._made: dict[FineTuningConfig, Program] = {}

    def __contains__(self, config: FineTuningConfig) -> bool:
        """Whether `get` has a program already."""
        return _shared(config) in self._made

    def get(self, config: FineTuningConfig) -> Program:
        """The program of a configuration."""
        shared = _shared(config)
        if shared not in self._made:
            self._made[shared] = make_program(self._make_head(shared), shared)
        return self._made[shared].with_run(config)


def _shared(config: FineTuningConfig) -> FineTuningConfig:
    """What a configuration has in common with all others of the same program."""
    return dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=1.0, warmup_steps=0),
        num_train_steps=1,
        seed=0,
        log_every=1,
        eval_every=1,
        checkpoint_every=1,
    )
