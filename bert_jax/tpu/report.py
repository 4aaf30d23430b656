"""Memory, cycles and collectives of a training step on a slice, from the TPU compiler."""

import dataclasses
import functools
import re
import time

import jax

from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.tpu.hlo import Costs, Exchange, read_costs
from bert_jax.tpu.kernel_cycles import kernel_cycles
from bert_jax.tpu.topology import Slice
from bert_jax.training.program import make_program
from data_pipeline.config import Phase
from data_pipeline.errors import UserError


class TooLarge(Exception):
    """The step does not fit a chip's memory; the message says what it would need."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one chip during a step."""

    arguments: int
    """Parameters, optimizer state and batch; the new state takes the place of the old."""
    outputs: int
    """Results that do not reuse an argument's memory."""
    temporaries: int
    """Activations, gradients and random bits at their peak."""
    program: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.program


@dataclasses.dataclass(frozen=True)
class Report:
    """One compiled step; everything but `devices` is for one device, which is a chip but on TPU7x."""

    devices: int
    batch: float
    """Rows of the batch for each device; a fraction where several share a row."""
    length: int
    memory: Memory
    model_flops: float
    """FLOPs of the model as published (`Objective.flops`), the basis for comparing speeds."""
    compiled_flops: float
    """FLOPs as the compiler counts them: fewer where the step computes less than the published model."""
    costs: Costs
    computing_seconds: float
    """Cycles at the chip's clock, without operations that have no estimate."""
    exchanging_seconds: float
    """How long the device waits for exchanges: what it sends, at the speed of its links, without what it
    computes meanwhile."""
    seconds: float
    """Estimated time of a step: the sum of the two."""
    fraction_of_peak: float
    """MFU: `model_flops / seconds` as a fraction of the device's peak FLOP/s."""
    compile_seconds: float


def compile_step(experiment: Experiment, phase: Phase, where: Slice) -> Report:
    """Compiles the training step of a phase for a slice.

    Raises:
      UserError: the batch does not divide among the chips, or the mode is pmap.
      TooLarge: the step does not fit a chip's memory.
    """
    if experiment.parallel.mode != "jit":
        raise UserError("only parallel.mode jit is compiled for a slice")
    task = PretrainingTask(experiment.objective, experiment.model)
    program = make_program(task, experiment, list(where.devices))
    batch = task.abstract_batch(phase, experiment.global_batch_size, experiment.data.max_instances_per_row)
    start = time.perf_counter()
    compiled = _compile(program.lower_train_step(batch))
    compile_seconds = time.perf_counter() - start

    devices = len(where.devices)
    model_flops = task.flops(batch) / devices
    text, counted = compiled.as_text(), compiled.cost_analysis()
    assert text is not None
    assert counted is not None
    rate = experiment.model.attention_dropout_rate
    costs = read_costs(text, functools.partial(kernel_cycles, where, rate))
    computing = costs.cycles / where.chip.clock_hz
    exchanging = sum(waiting_seconds(exchange, where) for exchange in costs.exchanges)
    seconds = computing + exchanging
    return Report(
        devices=devices,
        batch=experiment.global_batch_size / devices,
        length=phase.max_seq_length,
        memory=_memory(compiled),
        model_flops=model_flops,
        compiled_flops=counted["flops"],
        costs=costs,
        computing_seconds=computing,
        exchanging_seconds=exchanging,
        seconds=seconds,
        fraction_of_peak=model_flops / seconds / where.chip.peak_flops,
        compile_seconds=compile_seconds,
    )


def waiting_seconds(exchange: Exchange, where: Slice) -> float:
    """How long a device waits for these collectives, each as fast as all links of its chip allow."""
    if not (sent := exchange.bytes_sent(len(where.devices))):
        return 0.0  # also where a chip has no links
    hidden = exchange.hidden_cycles / where.chip.clock_hz
    return exchange.count * max(0.0, sent / where.bandwidth - hidden)


def _compile(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        # The compiler has two messages for this; both give first the memory needed, then the memory there is.
        reason = str(error).splitlines()[0]
        sizes = re.findall(r"\b[\d.]+[MG]\b", reason)
        raise TooLarge(f"it takes {sizes[0]} of {sizes[1]}" if len(sizes) > 1 else reason) from None


def _memory(compiled: jax.stages.Compiled) -> Memory:
    stats = compiled.memory_analysis()
    assert stats is not None
    return Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes - stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        program=stats.generated_code_size_in_bytes,
    )
