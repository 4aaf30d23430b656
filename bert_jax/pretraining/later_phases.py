"""Compiles the steps of a run's later phases before its first step.

Longer sequences take more memory, and the TPU compiler rejects a step that does not fit. Compiling
early makes that happen at the start of the run, not days later when the phase begins.
"""

import time
from collections.abc import Callable

import numpy as np

from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel import processes
from bert_jax.training.program import Program


def compile_later_phases(
    program: Program, experiment: Experiment, step: int, say: Callable[[str], None]
) -> float:
    """Compiles the step of each phase that begins after `step`; jax keeps the result until it is needed.

    Returns how many seconds that took.

    Does nothing under pmap with several processes: there jax lowers a step only for arrays, not for shapes.

    Args:
      program: the compiled task.
      experiment: its settings.
      step: steps done.
      say: prints one line.
    """
    began = time.perf_counter()
    if experiment.parallel.mode == "pmap" and processes.count() > 1:
        return 0.0
    task = program.task
    assert isinstance(task, PretrainingTask)
    held = program.rows.ranges(experiment.global_batch_size)
    num_rows = sum(stop - start for start, stop in held)
    for _, phase, start, stop in experiment.data.stretches(experiment.num_train_steps):
        if step < start < stop:
            say(f"compiling the step for length {phase.max_seq_length}, which begins at step {start}")
            shapes = task.abstract_batch(phase, num_rows, experiment.data.max_instances_per_row)
            batch = {name: np.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
            program.lower_train_step(program.put(batch)).compile()
    return time.perf_counter() - began
