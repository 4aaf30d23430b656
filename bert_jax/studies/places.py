"""On what the workers of a study compute, and which jobs each does.

On a CPU every worker computes on one core, however many there are: how XLA divides a sum among cores decides
how it is rounded, so that a run's bits would depend on their number. Small runs side by side also finish more
steps in an hour than one run on all cores does.

On several GPUs or TPU chips there are two rounds in turn, since a process holds the chips that it sees. One
worker with all chips pretrains, together with those of the slice's other hosts, as long as a pretraining is
free. Then a worker on each chip measures what is pretrained: fine-tunings are too small for several chips.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import joblib

from bert_jax.objectives.experiment import Experiment
from bert_jax.parallel.chips import find_chips
from bert_jax.studies.plan import Job, Plan, PretrainingJob
from data_pipeline.config import Phase

Jobs: TypeAlias = Literal["all", "pretrainings", "measures"]

_VARIABLE = "BERT_JAX_STUDY_PLACE"
"""Environment variable of a worker: its place."""


@dataclasses.dataclass(frozen=True)
class Place:
    """What a worker computes on, and what it does there."""

    jobs: Jobs = "all"
    core: int | None = None
    """The one core that it computes on; None: all."""
    chip: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables that make it see one chip alone; empty: all chips."""
    parent: int | None = None
    """Process that started the worker."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the worker."""
        place = dataclasses.replace(self, parent=os.getpid())
        return {**os.environ, **self.chip, _VARIABLE: json.dumps(dataclasses.asdict(place))}

    def has(self, job: Job) -> bool:
        """Whether such a job is done here."""
        return self.jobs in ("all", "pretrainings" if isinstance(job, PretrainingJob) else "measures")

    def enter(self) -> None:
        """Makes this process compute on the place's core alone."""
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})


def place_of_worker() -> Place | None:
    """The place of this process; None if it is not a study's worker."""
    text = os.environ.get(_VARIABLE)
    return Place(**json.loads(text)) if text else None


_GIB = 2**30
# A process with jax and TensorFlow before it computes.
_BYTES_OF_A_PROCESS = 1.5 * _GIB
# float32 parameters, their gradients and Adam's two moments.
_BYTES_PER_PARAMETER = 16
# float32 values that a layer keeps for the backward pass, per position and unit of width; measured, roughly.
_VALUES_PER_UNIT = 24


def find_places(plan: Plan, num_workers: int | None, *, distributed: bool) -> Sequence[Sequence[Place]]:
    """The places of this machine, in one round or in two that alternate.

    The study is done when a worker of the first round exits with 0.

    Args:
      num_workers: how many; of several chips, at most how many in the measuring round. None: one for each
        chip, and on a CPU one for each core, as far as memory allows.
      distributed: whether other machines take part in each pretraining.
    """
    chips = find_chips()
    if distributed or len(chips.environments) > 1:
        measuring = [Place("measures", chip=chip) for chip in chips.environments[:num_workers]]
        return [Place("pretrainings")], measuring
    if chips.platform != "cpu" or not hasattr(os, "sched_getaffinity"):
        return ([Place()] * (num_workers or 1),)
    cores = sorted(os.sched_getaffinity(0))
    if num_workers is None:
        largest = max(map(memory_of, plan.experiments.values()))
        num_workers = max(min(joblib.cpu_count(), int(_available_memory() / largest)), 1)
    return ([Place(core=cores[worker % len(cores)]) for worker in range(num_workers)],)


def memory_of(experiment: Experiment) -> float:
    """Bytes that pretraining needs on a CPU, estimated."""
    model = experiment.model
    batches, parts = experiment.stretches, experiment.parallel.accumulation_steps
    positions = max(s.batch_size * s.phase.max_seq_length for s in batches) / parts
    predictions = max(s.batch_size * _predictions_of_row(experiment, s.phase) for s in batches) / parts
    activations = 4 * positions * model.hidden_size * model.num_layers * _VALUES_PER_UNIT
    logits = 3 * 4 * predictions * model.vocab_size
    parameters = experiment.objective.num_parameters(model) * _BYTES_PER_PARAMETER
    return _BYTES_OF_A_PROCESS + parameters + activations + logits


def _predictions_of_row(experiment: Experiment, phase: Phase) -> float:
    """How many positions of a row have logits, by what one more word costs in FLOPs."""
    model, sizes = experiment.model, (phase.max_seq_length, phase.max_predictions_per_seq, 1)
    larger = dataclasses.replace(model, vocab_size=model.vocab_size + 1)
    flops = [experiment.objective.flops(one, *sizes) for one in (model, larger)]
    return (flops[1] - flops[0]) / (3 * 2 * model.embedding_width)


def _available_memory() -> float:
    """Bytes that processes can still get, of the machine's and of the container's memory."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = dict(line.split(":") for line in lines)["MemAvailable"]
    return min(int(free.split()[0]) * 1024, _left_in_container(Path("/sys/fs/cgroup")))


def _left_in_container(group: Path) -> float:
    """Bytes below the memory limit of a control group; infinite if it has none.

    The files' pages that the kernel would drop first count as free, as they do for Kubernetes.
    """
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):  # "max", or not in a container
        return math.inf
    return limit - used + int(dict(line.split() for line in lines)["inactive_file"])
