"""From measurements to the cells of a study's table: means over seeds, differences with intervals."""

import dataclasses
import functools
import itertools
import math
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from zipfile import BadZipFile

import numpy as np

from bert_jax.studies.directory import JOB_FILE
from bert_jax.studies.results import Measurement, StudyResults
from bert_jax.studies.statistics import Difference, paired_difference
from bert_jax.studies.weighted_metrics import Statistic, statistic_of
from bert_jax.study import Measure, Probe, Study
from data_pipeline.errors import bad_input

Verdict = Literal["reproduced", "reversed", "undecided with these seeds"]
"""What a study says of an order of two arms in the paper."""


_Files: TypeAlias = tuple[tuple[tuple[Path, int], ...], ...]
"""Of each pretraining seed and each of its fine-tuning seeds a file, and when it was written."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """An arm and a column.

    Scores of fine-tuned models and of minimal pairs are in percent where papers give percent; held-out
    accuracies are fractions, and losses are in nats.
    """

    values: Mapping[int, float]
    """Pretraining seed -> mean over its fine-tuning seeds, with the hyperparameters that are best on dev."""
    num_seeds: int
    """How many pretraining seeds there will be."""
    hyperparameters: Mapping[int, str]
    """Pretraining seed -> those chosen; empty where there are none to choose."""
    finetuning_stdev: float | None
    """Sample standard deviation of fine-tuning seeds, pooled over pretraining seeds; None without repeats."""
    num_trials: int
    num_degenerate: int
    num_diverged: int
    published: float | None
    difference: Difference | None
    """To the base, over the seeds that both have; None for the base itself, and where there is none."""
    published_difference: float | None

    @property
    def mean(self) -> float | None:
        """Over pretraining seeds; None if there is none yet."""
        return statistics.fmean(self.values.values()) if self.values else None

    @property
    def stdev(self) -> float | None:
        """Sample standard deviation over pretraining seeds; None with fewer than two."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None


@dataclasses.dataclass(frozen=True)
class Order:
    """Two arms that differ in a column of the paper."""

    better: str
    worse: str
    verdict: Verdict
    """Whether they differ in the same direction here; it cannot be told if the interval contains 0, or
    there is none."""


@dataclasses.dataclass(frozen=True)
class StudyTable:
    """The table of a study."""

    study: Study
    """At its scale (`Study.at`); its measures are the columns."""
    cells: Mapping[tuple[str, str], Cell]
    """(arm, heading of a column) -> its cell at the end of pretraining; arms that are not measured so have
    none."""
    by_step: Mapping[str, Mapping[tuple[str, int], Cell]]
    """Heading of a column -> (arm, step) -> its cell, for each step after which it was measured."""
    orders: Mapping[str, tuple[Order, ...]]
    """Heading of a column -> every two of these arms that differ in the paper."""
    between_arms: Mapping[tuple[str, str], Mapping[str, Difference | None]]
    """(arm, the one that it is compared with besides the base) -> heading of a column -> difference."""


def make_table(results: StudyResults) -> StudyTable:
    """The table of the results so far."""
    plan, study, base = results.plan, results.plan.study, results.plan.study.base
    cells, by_step, orders = {}, {}, {}
    pairs = [(name, arm.compared_with) for name, arm in study.arms.items() if arm.compared_with]
    between_arms: dict[tuple[str, str], dict[str, Difference | None]] = {pair: {} for pair in pairs}
    for column in study.measures:
        published = {arm: row[column.column] for arm, row in study.published.items() if column.column in row}
        by_arm = {arm: _last(results, arm, column) for arm in study.arms}
        for arm, measured in by_arm.items():
            if not measured and not _will_be_measured(results, arm, column):
                continue
            cells[arm, column.column] = _cell(
                measured,
                column,
                plan.scale.seeds,
                None if arm == base else _difference(by_arm[base], measured, column),
                published.get(arm),
                # 82.1 - 84.4 is -2.3.
                round(published[arm] - published[base], 10)
                if arm != base and {arm, base} <= set(published)
                else None,
            )
        for arm, other in pairs:
            between_arms[arm, other][column.column] = _difference(by_arm[other], by_arm[arm], column)
        by_step[column.column] = _cells_by_step(results, column, base)
        orders[column.column] = tuple(_orders(by_arm, published, column))
    return StudyTable(study, cells, by_step, orders, between_arms)


def several_steps(cells: Mapping[tuple[str, int], Cell]) -> bool:
    """Whether some arm of a column's cells by step was measured more than once."""
    return len(cells) > len({arm for arm, _ in cells})


def _cells_by_step(results: StudyResults, column: Measure, base: str) -> dict[tuple[str, int], Cell]:
    """A column's cells for each arm and each step at which it was measured, without the paper's numbers."""
    measured: dict[tuple[str, int], list[Measurement]] = {}
    for m in results.measurements:
        if _is_shown(m, column):
            measured.setdefault((m.arm, m.step), []).append(m)
    cells = {}
    for (arm, step), mine in measured.items():
        difference = None if arm == base else _difference(measured.get((base, step), ()), mine, column)
        cells[arm, step] = _cell(mine, column, results.plan.scale.seeds, difference)
    return cells


def _orders(
    by_arm: Mapping[str, Sequence[Measurement]], published: Mapping[str, float], column: Measure
) -> Iterator[Order]:
    """The orders of the paper among the arms of a column, from the arm that is best there."""
    arms = [arm for arm in by_arm if arm in published]
    ranked = sorted(arms, key=lambda arm: published[arm], reverse=column.higher_is_better)
    for better, worse in itertools.combinations(ranked, 2):
        if published[better] != published[worse]:
            difference = _difference(by_arm[worse], by_arm[better], column)
            yield Order(better, worse, _verdict(difference, column))


def _verdict(better_less_worse: Difference | None, column: Measure) -> Verdict:
    if better_less_worse is None or not better_less_worse.is_distinguishable:
        return "undecided with these seeds"
    return "reproduced" if (better_less_worse.mean > 0) == column.higher_is_better else "reversed"


def _will_be_measured(results: StudyResults, arm: str, column: Measure) -> bool:
    """Whether this cell is still to come.

    The arm has this measure, and it has not already finished without this metric.
    """
    mine = [m for m in results.measurements if (m.arm, m.measure) == (arm, column.name)]
    if mine and not any(_is_shown(m, column) for m in mine):
        return False
    return results.plan.study.arms[arm].has(column)


def _last(results: StudyResults, arm: str, column: Measure) -> list[Measurement]:
    """The measurements of an arm at the end of its pretraining that a column shows."""
    step = results.plan.experiments[arm].num_train_steps
    return [m for m in results.measurements if (m.arm, m.step) == (arm, step) and _is_shown(m, column)]


def _is_shown(measured: Measurement, column: Measure) -> bool:
    if isinstance(column, Probe) and column.layer not in (None, measured.layer):
        return False
    return measured.measure == column.name and column.metric in measured.metrics


def _cell(
    measured: Sequence[Measurement],
    column: Measure,
    num_seeds: int,
    difference: Difference | None,
    published: float | None = None,
    published_difference: float | None = None,
) -> Cell:
    values, chosen = {}, {}
    squares, freedom = 0.0, 0
    for seed, of_seed in _by_seed(measured).items():
        trials, value = _best(of_seed, column)
        if math.isnan(value):
            continue
        values[seed], chosen[seed] = value, trials[0].hyperparameters
        squares += sum((trial.metrics[column.metric] - value) ** 2 for trial in trials)
        freedom += len(trials) - 1
    return Cell(
        values=values,
        num_seeds=num_seeds,
        hyperparameters=chosen,
        finetuning_stdev=math.sqrt(squares / freedom) if freedom else None,
        num_trials=len(measured),
        num_degenerate=sum(m.degenerate is not None for m in measured),
        num_diverged=sum(m.diverged is not None for m in measured),
        published=published,
        difference=difference,
        published_difference=published_difference,
    )


def _by_seed(measured: Sequence[Measurement]) -> dict[int, list[Measurement]]:
    seeds: dict[int, list[Measurement]] = {}
    for measurement in measured:
        seeds.setdefault(measurement.seed, []).append(measurement)
    return dict(sorted(seeds.items()))


def _best(of_seed: Sequence[Measurement], column: Measure) -> tuple[list[Measurement], float]:
    """The trials of the hyperparameters with the best mean over fine-tuning seeds, and that mean.

    A trial that diverged makes the mean of its hyperparameters NaN, which ranks last. Hyperparameters with
    fewer fine-tuning seeds than others have are left out.
    """
    groups: dict[str, list[Measurement]] = {}
    for measurement in of_seed:
        groups.setdefault(measurement.hyperparameters, []).append(measurement)
    sign = 1 if column.higher_is_better else -1

    def mean(group: Sequence[Measurement]) -> float:
        return statistics.fmean(trial.metrics[column.metric] for trial in group)

    def rank(group: Sequence[Measurement]) -> float:
        value = mean(group)
        return -math.inf if math.isnan(value) else sign * value

    most = max(map(len, groups.values()))
    best = max((group for group in groups.values() if len(group) == most), key=rank)
    return sorted(best, key=lambda trial: trial.finetuning_seed or 0), mean(best)


def _difference(
    baseline: Sequence[Measurement], treatment: Sequence[Measurement], column: Measure
) -> Difference | None:
    """Treatment minus baseline over the pretraining seeds that both have; None if there is none."""
    arms = [_by_seed(measured) for measured in (baseline, treatment)]
    pairs = [[_best(arm[seed], column) for arm in arms] for seed in arms[0] if seed in arms[1]]
    pairs = [pair for pair in pairs if not any(math.isnan(value) for _, value in pair)]
    if not pairs:
        return None
    by_arm = list(zip(*pairs, strict=True))
    files, other_files = (_files([trials for trials, _ in arm]) for arm in by_arm)
    if files is not None and other_files is not None:
        (first, *_), _ = pairs[0][0]
        scale = first.items_scale.get(column.metric, 1.0)
        over_items = _difference_over_items(files, other_files, column.metric, scale)
        if over_items is not None:
            return over_items
    values, other_values = (np.array([value for _, value in arm]) for arm in by_arm)
    return paired_difference(values, other_values)


def _files(trials: Sequence[Sequence[Measurement]]) -> _Files | None:
    """The files of the outcomes of single items; None if some trial has none."""
    paths = [[trial.items for trial in of_seed] for of_seed in trials]
    if not all(path is not None and path.exists() for of_seed in paths for path in of_seed):
        return None
    return tuple(tuple((path, path.stat().st_mtime_ns) for path in of_seed if path) for of_seed in paths)


@functools.cache  # A report is made after each run, in which few cells are new.
def _difference_over_items(
    baseline: _Files, treatment: _Files, metric: str, scale: float
) -> Difference | None:
    """The difference over seeds and test items; None where the items are not comparable."""
    baseline_items, treatment_items = _outcomes(baseline, metric), _outcomes(treatment, metric)
    if baseline_items is None or treatment_items is None or baseline_items.shape != treatment_items.shape:
        return None
    if baseline_items.ndim == 3:
        # The mean over fine-tuning seeds of means over items is the mean over items of their means.
        return paired_difference(scale * baseline_items.mean(axis=2), scale * treatment_items.mean(axis=2))
    return paired_difference(baseline_items, treatment_items, _over_finetuning(metric, scale))


def _outcomes(files: _Files, metric: str) -> np.ndarray | None:
    """The outcomes of single items [S, N, F, ...] of F fine-tuning seeds of S pretraining seeds.

    None where a file lacks the metric, seeds have different numbers of trials or items, or no `Statistic`
    makes the metric of them.
    """
    arrays = []
    for path, _ in itertools.chain.from_iterable(files):
        try:
            with np.load(path) as found:
                if metric not in found:
                    return None
                arrays.append(found[metric])
        except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
            job = next(parent for parent in path.parents if (parent / JOB_FILE).exists())
            what = f"{path} is damaged; remove {job}, and the job is done again"
            raise bad_input(error, path, what) from None
    alike = len({array.shape for array in arrays}) == 1 and len({len(of_seed) for of_seed in files}) == 1
    if not alike or not all(np.isfinite(array).all() for array in arrays):
        return None
    if statistic_of(metric, arrays[0]) is None:
        return None
    stacked = np.stack(arrays).reshape(len(files), -1, *arrays[0].shape)
    return np.moveaxis(stacked, 1, 2)


def _over_finetuning(metric: str, scale: float) -> Statistic:
    """The statistic of a pretraining seed: the mean of a metric's over its fine-tuning seeds."""

    def over_finetuning(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        statistic = statistic_of(metric, outcomes[0, :, 0])
        assert statistic is not None, "_outcomes has seen that there is one"
        parts = [statistic(outcomes[:, :, seed], weights) for seed in range(outcomes.shape[2])]
        return scale * functools.reduce(np.add, parts) / len(parts)

    return over_finetuning
