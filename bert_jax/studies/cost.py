"""What a study costs: floating-point operations, and the hours that they take on the devices at hand."""

import dataclasses
import functools
import statistics
import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import jax
import numpy as np

from bert_jax.model.size import encoder_flops
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.studies.data import Loaded
from bert_jax.studies.plan import Job, Measuring, Plan, Pretraining
from bert_jax.studies.study import Finetuned
from bert_jax.training.accounting import run_flops
from bert_jax.training.program import make_program

_STEPS = 3
# Enough rows for the speed of a large batch; a step of 256 takes minutes on a CPU.
_MOST_ROWS = 64
# Operations of an evaluation, which has no backward pass, as a fraction of those of training.
_FORWARD = 1 / 3
_BYTES_PER_VALUE = 4
# Parameters and Adam's two moments.
_COPIES_IN_A_CHECKPOINT = 3


def flops_of(job: Job, loaded: Mapping[str, Loaded]) -> float:
    """Floating-point operations of a job; of measures other than fine-tuning 0, since they are few.

    Args:
      job: of the plan.
      loaded: name of a measure -> its data, as `check_data` returns it.
    """
    match job:
        case Pretraining(experiment=experiment):
            return run_flops(experiment)
        case Measuring(measure=Finetuned(name=name)) if name in loaded:
            return _finetuning_flops(job, loaded[name])
    return 0.0


def _finetuning_flops(job: Measuring, data: Loaded) -> float:
    """Of all trials, counted on real tokens: padding and what the head does are left out."""
    training, model = data.arguments.training, job.model.experiment.model
    length = max(round(data.train_tokens / max(data.train_rows, 1)), 1)
    frozen = training.rates.frozen_layers or 0
    a_row = encoder_flops(model, length, frozen)
    if frozen == model.num_layers:  # computed once for all trials
        return data.train_rows * a_row * (1 + data.evaluated_tokens / max(data.train_tokens, 1))
    evaluations = data.evaluated_tokens / max(data.train_tokens, 1) * _FORWARD
    return sum(data.train_rows * a_row * trial.epochs * (1 + evaluations) for trial in training.trials())


def bytes_of(job: Job) -> int:
    """Disk that a job's files take: checkpoints."""
    experiment = job.experiment if isinstance(job, Pretraining) else job.model.experiment
    kept = 1
    if isinstance(job, Pretraining):
        kept = experiment.keep_checkpoints
        if experiment.keep_every:
            kept += experiment.num_train_steps // experiment.keep_every
    parameters = experiment.objective.num_parameters(experiment.model)
    return kept * parameters * _BYTES_PER_VALUE * _COPIES_IN_A_CHECKPOINT


@functools.cache
def flops_per_second(experiment: Experiment) -> float:
    """How fast the devices pretrain, measured by a few steps on batches of the real size, or of 64 rows.

    Compiles, which takes most of the time. All numbers in the batches are 0.
    """
    rows = min(experiment.global_batch_size, _MOST_ROWS) // jax.device_count() * jax.device_count()
    parallel = dataclasses.replace(experiment.parallel, accumulation_steps=1)
    experiment = dataclasses.replace(experiment, parallel=parallel)
    experiment = experiment.with_batches_of(max(rows, jax.device_count()))
    task = PretrainingTask(experiment.objective, experiment.model)
    program = make_program(task, experiment)
    phase = experiment.data.phases[0]
    shapes = task.abstract_batch(phase, experiment.global_batch_size, experiment.data.max_instances_per_row)
    batch: Any = program.put({name: np.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()})
    state = program.init()
    seconds = []
    for _ in range(1 + _STEPS):
        began = time.perf_counter()
        state = program.train_step(state, batch, np.float32(0))
        jax.block_until_ready(state.step)
        seconds.append(time.perf_counter() - began)
    return program.flops(batch) / statistics.median(seconds[1:])


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one job."""

    flops: float
    seconds: float
    """On one worker; 0 where it is not measured."""
    disk: int
    """Bytes."""


def costs(plan: Plan, loaded: Mapping[str, Loaded]) -> dict[PurePosixPath, Cost]:
    """What each job of a plan costs; takes a few steps of each arm."""
    found = {}
    for job in plan.jobs:
        run = job if isinstance(job, Pretraining) else job.model
        speed = flops_per_second(dataclasses.replace(run.experiment, seed=0))
        flops = flops_of(job, loaded)
        found[job.path] = Cost(flops, flops / speed, bytes_of(job))
    return found
