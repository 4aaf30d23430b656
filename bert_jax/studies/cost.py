"""What a study costs: floating-point operations, and the hours that they take here or on a TPU slice."""

import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import jax
import numpy as np

from bert_jax.model.size import encoder_flops
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.studies.check_data import Loaded
from bert_jax.studies.plan import MeasuringJob, Plan, PretrainingJob
from bert_jax.study import Finetuned
from bert_jax.tpu.report import TooLarge, compile_step
from bert_jax.tpu.topology import Slice
from bert_jax.training.accounting import flops_by_phase, run_flops
from bert_jax.training.program import make_program
from data_pipeline.config import MaskingConfig, Phase
from data_pipeline.errors import UserError

Speed: TypeAlias = Callable[[Experiment, Phase], float]
"""Floating-point operations a second of pretraining in a phase, counted as `Objective.flops` says."""

_FEWEST_STEPS, _MOST_STEPS = 3, 20
# Seconds of measured steps after which no more are needed.
_SECONDS = 2.0
# Enough rows for the speed of a large batch; a step of 256 takes minutes on a CPU.
_MOST_ROWS_ON_CPU = 64
# Operations of an evaluation, which has no backward pass, as a fraction of those of training.
_FORWARD = 1 / 3
_BYTES = {"float32": 4, "bfloat16": 2}


def _finetuning_flops(job: MeasuringJob, data: Loaded) -> float:
    """Of all trials, counted on real tokens in encoder and BiLSTM: without padding and the output layer."""
    training, model = data.arguments.training, job.model.experiment.model
    length = max(round(data.train_tokens / max(data.train_rows, 1)), 1)
    evaluated = data.evaluated_tokens / max(data.train_tokens, 1)
    frozen = training.rates.frozen_layers
    passes = sum(trial.epochs for trial in training.trials()) * (1 + evaluated * _FORWARD)
    # What a frozen encoder gives is computed once for all trials.
    encoder_passes = 1 + evaluated if frozen == model.num_layers else passes
    encoder = encoder_flops(model, length, frozen) * encoder_passes
    lstm = training.features.lstm_flops(model.hidden_size, length) * passes
    return data.train_rows * (encoder + lstm)


def _checkpoint_bytes(experiment: Experiment, moment_dtype: str) -> int:
    """Of the parameters, in float32, and of Adam's two moments; Muon keeps one for most parameters."""
    parameters = experiment.objective.num_parameters(experiment.model)
    return parameters * (_BYTES["float32"] + 2 * _BYTES[moment_dtype])


def measured_speed(experiment: Experiment, phase: Phase) -> float:
    """The `Speed` of the devices at hand, measured by a few steps on batches of the real size.

    On a CPU of at most 64 rows. Compiles, which takes most of the time. All numbers in the batches are 0.
    """
    most = _MOST_ROWS_ON_CPU if jax.default_backend() == "cpu" else experiment.global_batch_size
    rows = min(experiment.global_batch_size // experiment.parallel.accumulation_steps, most)
    rows = max(rows // jax.device_count(), 1) * jax.device_count()
    parallel = dataclasses.replace(experiment.parallel, accumulation_steps=1)
    alike = dataclasses.replace(_alike(experiment), parallel=parallel)
    return _measure(alike.with_batches_of(rows), phase)


@functools.cache
def _measure(experiment: Experiment, phase: Phase) -> float:
    rows, length = experiment.global_batch_size, phase.max_seq_length
    print(f"compiling and timing a step of {rows} x {length}", file=sys.stderr, flush=True)
    task = PretrainingTask(experiment.objective, experiment.model)
    program = make_program(task, experiment)
    shapes = task.abstract_batch(phase, experiment.global_batch_size, experiment.data.max_instances_per_row)
    batch: Any = program.put({name: np.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()})
    state = program.init()
    seconds: list[float] = []
    while len(seconds) < 1 + _FEWEST_STEPS or (sum(seconds[1:]) < _SECONDS and len(seconds) < _MOST_STEPS):
        began = time.perf_counter()
        state = program.train_step(state, batch, np.float32(0))
        jax.block_until_ready(state.step)
        seconds.append(time.perf_counter() - began)
    return program.flops(batch) / statistics.median(seconds[1:])


def compiled_speed(where: Slice) -> Speed:
    """The `Speed` of a TPU slice by the compiler's estimate; compiles for minutes.

    The speed raises UserError if a step does not fit a chip.
    """

    @functools.cache
    def speed(experiment: Experiment, phase: Phase) -> float:
        rows, length = experiment.global_batch_size, phase.max_seq_length
        print(f"compiling a step of {rows} x {length} for {where.name}", file=sys.stderr, flush=True)
        try:
            report = compile_step(experiment, phase, where)
        except TooLarge as error:
            raise UserError(
                f"a step of {rows} sequences of {length} does not fit a chip of {where.name}: {error}; name "
                f"a larger slice, or raise --parallel.accumulation-steps"
            ) from None
        return report.devices * report.model_flops / report.seconds

    def of_largest_batch(experiment: Experiment, phase: Phase) -> float:
        return speed(_alike(experiment.with_batches_of(experiment.largest_batch(phase))), phase)

    return of_largest_batch


def pretraining_seconds(experiment: Experiment, speed: Speed) -> float:
    """How long the steps of a run take; evaluation, saving and compiling are not counted."""
    return sum(flops / speed(experiment, phase) for phase, flops in flops_by_phase(experiment) if flops)


def _alike(experiment: Experiment) -> Experiment:
    """The experiment with those settings fixed in which arms often differ and on which the compiled step does
    not depend, so that it is measured once."""
    optimizer = dataclasses.replace(
        experiment.optimizer,
        learning_rate=1.0,
        warmup_steps=0,
        warmup_from=0.0,
        decay_shape="polynomial",
        decay_power=1.0,
        decay_start="step_0",
    )
    usual = MaskingConfig()
    masking = dataclasses.replace(
        experiment.data.masking, mask=usual.mask, same=usual.same, random=usual.random
    )
    data = dataclasses.replace(experiment.data, masking=masking)
    return dataclasses.replace(experiment, data=data, optimizer=optimizer, num_train_steps=1, seed=0)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one job."""

    flops: float
    seconds: float
    """On one worker; 0 where it is not measured."""
    disk: int
    """Bytes."""


def costs(plan: Plan, loaded: Mapping[tuple[str, str], Loaded], speed: Speed) -> dict[PurePosixPath, Cost]:
    """What each job of a plan costs; of measures other than fine-tuning 0, since they take little.

    Args:
      loaded: `MeasuringJob.data_key` -> its data, as `check_data` returns it.
      speed: of pretraining; fine-tuning is taken to be as fast as the first phase.
    """
    found = {}
    for job in plan.jobs:
        match job:
            case PretrainingJob(experiment=run):
                kept = run.keep_checkpoints
                if run.keep_every:
                    kept += run.num_train_steps // run.keep_every
                disk = kept * _checkpoint_bytes(run, run.optimizer.moment_dtype)
                cost = Cost(run_flops(run), pretraining_seconds(run, speed), disk)
            case MeasuringJob(measure=Finetuned(), model=PretrainingJob(experiment=run)):
                data = loaded.get(job.data_key)
                flops = _finetuning_flops(job, data) if data else 0.0
                cost = Cost(flops, flops / speed(run, run.data.phases[0]), _checkpoint_bytes(run, "float32"))
            case _:
                cost = Cost(0.0, 0.0, 0)
        found[job.path] = cost
    return found
