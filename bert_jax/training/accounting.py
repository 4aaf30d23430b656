"""The arithmetic of a whole run, and the peak arithmetic of devices; without jax."""

import re

from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import Phase

PEAK_FLOPS = {
    "tpu7x": 1153.5e12,  # half a chip, which shows as two devices
    "v6e": 918e12,
    "v6": 918e12,
    "v5p": 459e12,
    "v5 lite": 197e12,
    "v5e": 197e12,
    "v5": 459e12,
    "v4": 275e12,
    # Cards for a PCIe slot are slower than SXM modules. These values are half of the figures with sparsity
    # at nvidia.com/en-us/data-center/h200 (1,979; NVL 1,671) and /h100 (1,979; NVL 1,671; PCIe 1,513).
    "h200 nvl": 835e12,
    "h200": 989e12,
    "h100 nvl": 835e12,
    "h100 pcie": 756e12,
    "h100": 989e12,
    "a100": 312e12,
}
"""Dense bfloat16 FLOP/s of one device, from the makers' data sheets. Keys are matched as whole words in
`device_kind.lower()`. The first match wins, so specific names come before general ones."""


def run_tokens(experiment: Experiment) -> int:
    """Number of positions in a whole run, padding included."""
    return sum(rows * phase.max_seq_length for phase, rows in _rows_by_phase(experiment, 0))


def run_flops(experiment: Experiment) -> int:
    """Floating-point operations of a whole run, counted as `Objective.flops` says."""
    return flops_left(experiment, 0)


def flops_done(experiment: Experiment, step: int) -> int:
    """The part of `run_flops` that the first `step` steps take."""
    return run_flops(experiment) - flops_left(experiment, step)


def flops_left(experiment: Experiment, step: int) -> int:
    """The part of `run_flops` that remains when `step` steps are done."""
    return sum(flops for _, flops in flops_by_phase(experiment, step))


def flops_by_phase(experiment: Experiment, first_step: int = 0) -> list[tuple[Phase, int]]:
    """The phase of each stretch, and what remains of `run_flops` in it from a step on."""
    instances = experiment.data.max_instances_per_row
    return [
        (
            phase,
            rows
            * experiment.objective.flops(
                experiment.model, phase.max_seq_length, phase.max_predictions_per_seq, instances
            ),
        )
        for phase, rows in _rows_by_phase(experiment, first_step)
    ]


def peak_flops(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a device by its jax `device_kind`, or None where unknown."""
    kind = device_kind.lower()
    return next((peak for words, peak in PEAK_FLOPS.items() if re.search(rf"\b{words}\b", kind)), None)


def _rows_by_phase(experiment: Experiment, first_step: int) -> list[tuple[Phase, int]]:
    """The phase of each stretch, and the rows that remain of it from a step on."""
    return [
        (stretch.phase, stretch.batch_size * max(stretch.stop - max(stretch.start, first_step), 0))
        for stretch in experiment.stretches
    ]
