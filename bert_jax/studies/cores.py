"""How many workers of a study run side by side on this machine, and on which cores.

On a CPU every worker computes on one core, however many there are: how XLA divides a sum among cores decides
how it is rounded, so that a run's bits would depend on their number. Small runs side by side also finish more
steps in an hour than one run on all cores does.
"""

import os
import subprocess
import sys
from pathlib import Path

from bert_jax.objectives.experiment import Experiment
from bert_jax.studies.plan import Plan

ALL = "all"
"""In place of a core: the worker has the whole machine."""

_GIB = 2**30
# A process with jax and TensorFlow before it computes.
_BYTES_OF_A_PROCESS = 1.5 * _GIB
# float32 parameters, their gradients and Adam's two moments.
_BYTES_PER_PARAMETER = 16
# float32 values that a layer keeps for the backward pass, per position and unit of width; measured, roughly.
_VALUES_PER_UNIT = 24


def find_cores(plan: Plan, num_workers: int | None) -> list[str]:
    """A core for each worker; `ALL` for one that has the whole machine, as where there is an accelerator.

    Args:
      plan: of the study.
      num_workers: how many are asked for; None for as many as there are cores and memory.
    """
    if _has_accelerator() or not hasattr(os, "sched_getaffinity"):
        return [ALL] * (num_workers or 1)
    cores = sorted(os.sched_getaffinity(0))
    if num_workers is None:
        largest = max(map(memory_of, plan.experiments.values()))
        num_workers = max(min(len(cores), int(_available_memory() / largest)), 1)
    return [str(cores[worker % len(cores)]) for worker in range(num_workers)]


def memory_of(experiment: Experiment) -> float:
    """Bytes that pretraining needs on a CPU, estimated."""
    model = experiment.model
    batches, parts = experiment.stretches, experiment.parallel.accumulation_steps
    positions = max(s.batch_size * s.phase.max_seq_length for s in batches) / parts
    predictions = max(s.batch_size * s.phase.max_predictions_per_seq for s in batches) / parts
    activations = 4 * positions * model.hidden_size * model.num_layers * _VALUES_PER_UNIT
    logits = 3 * 4 * predictions * model.vocab_size
    parameters = experiment.objective.num_parameters(model) * _BYTES_PER_PARAMETER
    return _BYTES_OF_A_PROCESS + parameters + activations + logits


def _has_accelerator() -> bool:
    """Whether jax finds one; asked in another process, since the one that asks has it from then on."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return False
    asked = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip() not in ("cpu", "")


def _available_memory() -> float:
    """Bytes that processes can still get."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = dict(line.split(":") for line in lines)["MemAvailable"]
    return int(free.split()[0]) * 1024
