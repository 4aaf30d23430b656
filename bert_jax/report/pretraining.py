"""Pretraining runs side by side: the last held-out metrics of each, and the settings that differ.

Runs that differ in nothing but the seed are repeats of one another and make one group.
"""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.objectives import Objective
from bert_jax.task import Metric
from bert_jax.training.metric_log import heldout_rows
from bert_jax.workdir.pretraining_identity import counted_settings
from bert_jax.workdir.record import RunRecord, read_record


@dataclasses.dataclass(frozen=True)
class Run:
    """One work directory."""

    directory: Path
    record: RunRecord
    heldout: list[dict[str, Any]]
    """Its evaluations, in order: the rows of `metrics.jsonl` whose split is `heldout`."""

    @property
    def step(self) -> int:
        """Step of the last evaluation; 0 before the first."""
        return self.heldout[-1]["step"] if self.heldout else 0

    @property
    def own_heldout(self) -> list[dict[str, Any]]:
        """As `heldout`, of a branch without what it has of the run that it branched from."""
        return [row for row in self.heldout if row["step"] >= self.record.branched_from.step]

    @property
    def metrics(self) -> dict[Metric, float]:
        """The objective's metrics at the last evaluation."""
        last = self.heldout[-1] if self.heldout else {}
        shown = self.record.experiment.objective.metrics
        return {metric: last[metric.name] for metric in shown if metric.name in last}

    @property
    def length(self) -> int | None:
        """Tokens in a row at the last evaluation; None before the first."""
        return self.heldout[-1].get("max_seq_length") if self.heldout else None

    def settings(self) -> dict[str, Any]:
        """Dotted path -> value of everything but the seed that the metrics may depend on."""
        return counted_settings(self.record.experiment) | {
            "corpus": self.record.corpus_fingerprint[:12],
            "init_from": self.record.init_fingerprint[:12] or "unset",
            "branched_from": str(self.record.branched_from) if self.record.branched_from.run else "unset",
        }


@dataclasses.dataclass(frozen=True)
class Group:
    """Repeats of one run with several seeds, evaluated at the same step."""

    name: str
    runs: tuple[Run, ...]

    @property
    def objective(self) -> Objective:
        """What all of them learn."""
        return self.runs[0].record.experiment.objective

    def metrics(self) -> dict[Metric, tuple[float, float | None]]:
        """Mean and sample standard deviation over the seeds; for one run the deviation is None."""
        metrics = {}
        shared = [
            metric for metric in self.runs[0].metrics if all(metric in run.metrics for run in self.runs)
        ]
        for metric in shared:
            values = [run.metrics[metric] for run in self.runs]
            deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None  # NaN if one is NaN
            metrics[metric] = statistics.fmean(values), deviation
        return metrics


def read_run(directory: Path) -> Run:
    """Reads a run's record and its evaluations so far.

    Raises:
      UserError: the directory is not that of a run.
    """
    return Run(directory, read_record(directory), heldout_rows(directory))


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Groups of repeats, in the order in which they first occur."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    of_seed: Counter[tuple[Any, ...]] = Counter()
    for run in runs:
        key = (run.step, frozenset(run.settings().items()))
        seed = (*key, run.record.experiment.seed)
        # A second run of a seed, such as a copy, is no repeat.
        groups.setdefault((*key, of_seed[seed]), []).append(run)
        of_seed[seed] += 1
    names = _distinct_names([group[0].directory.resolve() for group in groups.values()])
    return [
        Group(name if len(group) == 1 else f"{name} +{len(group) - 1}", tuple(group))
        for name, group in zip(names, groups.values(), strict=True)
    ]


def settings_that_differ(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Dotted path -> value in each group, for the settings that are not the same in all."""
    settings = [group.runs[0].settings() for group in groups]
    names = dict.fromkeys(name for of_group in settings for name in of_group)
    values = {name: [of_group.get(name, "unset") for of_group in settings] for name in names}
    different = {name: row for name, row in values.items() if any(value != row[0] for value in row)}
    if "init_from" in different:  # which are compared by fingerprint
        different["init_from"] = [group.runs[0].record.initial_model for group in groups]
    return different


def table(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One row for each run, for a file: its settings that differ from others', and its metrics."""
    different = settings_that_differ(groups)
    return [
        {
            "run": str(run.directory),
            "group": group.name,
            "experiment": run.record.experiment_name,
            "seed": run.record.experiment.seed,
            **{name: values[number] for name, values in different.items()},
            "step": run.step,
            "max_seq_length": run.length,
            **{metric.name: value for metric, value in run.metrics.items()},
        }
        for number, group in enumerate(groups)
        for run in group.runs
    ]


def notes(groups: Sequence[Group], different: Mapping[str, Any]) -> list[str]:
    """Notes that a reader of the metrics needs, one line each."""
    lines = []
    for group in groups:
        if len(group.runs) > 1:
            runs = (f"{run.directory} (seed {run.record.experiment.seed})" for run in group.runs)
            lines.append(f"{group.name}: {', '.join(runs)}")
        steps = group.runs[0].record.experiment.num_train_steps
        step = group.runs[0].step
        if step < steps:
            when = f"evaluated at step {step:,}" if step else "not evaluated yet"
            lines.append(f"{group.name}: {when}, of {steps:,} steps")
    if any(name.startswith("data.") or name == "corpus" for name in different):
        lines.append(
            "each run is evaluated on pairs and masks of its own: where the corpus or data.* differ, "
            "held-out metrics answer different questions; fine-tuned scores compare"
        )
    return lines


def _distinct_names(directories: Sequence[Path]) -> list[str]:
    """For each directory its name, with as many directories above it as tell all apart."""
    longest = max((len(directory.parts) for directory in directories), default=0)
    for number in range(1, longest + 1):
        names = ["/".join(directory.parts[-number:]) for directory in directories]
        if len(set(names)) == len(names):
            return names
    return [str(directory) for directory in directories]
