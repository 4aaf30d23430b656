"""What a study has measured so far: what tables and reports are made of."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Scale, Study


@dataclasses.dataclass(frozen=True)
class Measurement:
    """All metrics of one measured model: one line of `results.csv` for each metric."""

    arm: str
    seed: int
    """Pretraining seed."""
    step: int
    """Pretraining step of the checkpoint."""
    measure: str
    """`Measure.name`."""
    metrics: Mapping[str, float]
    """Name -> value on the dev set, in the unit of papers: of fine-tuned models percent; NaN if the trial
    diverged."""
    hyperparameters: str = ""
    """Of a fine-tuned model, such as "lr3e-05-batch32-epochs3"; empty where there are none to choose."""
    finetuning_seed: int | None = None
    layer: int | None = None
    """Of a probe, the layer that it sees."""
    degenerate: str | None = None
    """One sentence if the model predicts the same for every item."""
    diverged: str | None = None
    """One sentence if the loss was not finite."""
    items: Path | None = None
    """`.npz` of each metric's outcomes on the dev set's items: name -> [N, ...], what the `Statistic` takes
    that `bert_jax.studies.weighted_metrics.statistic_of` gives."""
    items_scale: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Metric -> what the statistic of its outcomes is multiplied by to have the unit of `metrics`; without
    an entry 1."""
    data_fingerprint: str = ""
    """Of minimal pairs, a hash of them; of fine-tuning data the records of the trials have one."""


@dataclasses.dataclass(frozen=True)
class PretrainedRun:
    """How far the pretraining of one arm with one seed is, and what it cost."""

    arm: str
    seed: int
    step: int
    """Of the last row of metrics; 0 before the first."""
    num_train_steps: int
    heldout: Sequence[Mapping[str, Any]]
    """Rows of `metrics.jsonl` whose split is `heldout`."""
    flops: float
    """Floating-point operations of the steps done."""
    seconds: float
    """Time spent in steps and evaluation."""
    devices: str
    """Such as "1 x cpu"."""
    only_guesses: bool = False
    """Whether it has ended with held-out metrics that are hardly better than those of guessing."""


@dataclasses.dataclass(frozen=True)
class StudyResults:
    """A study at one scale, complete or not."""

    study: Study
    """At this scale (`Study.at`)."""
    scale_name: str
    scale: Scale
    """With what the command line changed."""
    experiments: Mapping[str, Experiment]
    """Arm -> its settings at this scale, with seed 0."""
    changed: Sequence[str]
    """`Plan.changed`."""
    runs: Sequence[PretrainedRun]
    measurements: Sequence[Measurement]
    num_jobs: int
    num_done: int
    failed: Mapping[str, str]
    """Path of a job -> why it failed, in one line."""
