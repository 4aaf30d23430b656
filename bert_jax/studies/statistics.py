"""The difference between two arms of a study, with an interval over seeds and test items.

Seeds and test items are both samples, and every seed is tested on the same items. As in the multi-bootstrap
(Sellam et al. 2022, "The MultiBERTs", arXiv 2106.16163), items are resampled with replacement, the same draws
for both arms and all seeds. Seeds are not resampled: resampling only three of them underestimates their
variance, by a third. It is estimated as it is where several radiologists read the same cases (Obuchowski and
Rockette 1995):

    variance of the difference = variance between seeds / S + covariance of two seeds over draws of items

The first term already includes the interaction of seed and item; resampling both seeds and items would count
it three times. Half the interval is the root of the sum times the mean of Student's quantiles for S - 1 and
N - 1 degrees of freedom, weighted by the terms (Cochran and Cox 1950).

Coverage in simulations is in docs/results.md ("Intervals of a study"). Degrees of freedom after Satterthwaite
(Hillis 2007) fall to 92% for 3 seeds.

Shapes: S seeds, N items, R resamples.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from bert_jax.studies.weighted_metrics import Statistic, mean

FEWEST_SEEDS = 3
"""With fewer there is no interval."""

_CONFIDENCE = 0.95
_WEIGHTS_AT_ONCE = 1 << 23


@dataclasses.dataclass(frozen=True)
class Difference:
    """Treatment minus baseline, in units of the metric."""

    mean: float
    interval: tuple[float, float] | None
    """None with fewer than `FEWEST_SEEDS` seeds: how much seeds differ is then unknown."""
    num_seeds: int
    num_items: int | None
    """None where each seed has one number: the interval then is for these test items alone."""

    @property
    def is_distinguishable(self) -> bool | None:
        """Whether the interval excludes 0; None if there is no interval."""
        return None if self.interval is None else self.interval[0] > 0 or self.interval[1] < 0


def paired_difference(
    baseline: np.ndarray,
    treatment: np.ndarray,
    statistic: Statistic = mean,
    *,
    num_resamples: int = 1000,
    seed: int = 0,
) -> Difference:
    """Compares two arms that were run with the same seeds and tested on the same items.

    `benchmarks/interval_coverage.py` simulates arms whose true difference is known.

    Args:
      baseline: [S, N, ...], what `statistic` takes, with one row for each seed in the same order;
        or [S], the metric of each seed, which gives Student's paired interval over seeds.
      treatment: the same of the other arm.
      statistic: of each seed; the arms' metrics are its means over seeds.
      num_resamples: of the items; unused for `mean`, whose covariance has a closed form.
      seed: of these draws.

    Raises:
      ValueError: the arms differ in shape, are empty, or hold a number that is not finite.
    """
    baseline, treatment = np.asarray(baseline), np.asarray(treatment)
    if baseline.shape != treatment.shape or not baseline.ndim or not baseline.size:
        raise ValueError(f"arms of shapes {baseline.shape} and {treatment.shape} are not pairs of seeds")
    if not (np.isfinite(baseline).all() and np.isfinite(treatment).all()):
        raise ValueError("the scores of an arm are not all finite")
    num_seeds, num_items = baseline.shape[0], None if baseline.ndim == 1 else baseline.shape[1]

    def differences(weights: np.ndarray) -> np.ndarray:
        return statistic(treatment, weights) - statistic(baseline, weights)

    by_seed = treatment - baseline if num_items is None else differences(np.ones((1, num_items)))[0]
    interval = None
    if num_seeds >= FEWEST_SEEDS:
        of_items = 0.0
        if num_items is not None and statistic is mean:
            # The limit of infinitely many draws.
            by_item = np.subtract(treatment, baseline, dtype=np.float64)
            of_items = _of_two_seeds(np.cov(by_item, ddof=0) / num_items)
        elif num_items is not None:
            draws = [differences(weights) for weights in _resamples(num_items, num_resamples, seed)]
            of_items = _of_two_seeds(np.cov(np.concatenate(draws), rowvar=False))
        half = _half_width(by_seed, of_items, num_items)
        interval = float(by_seed.mean() - half), float(by_seed.mean() + half)
    return Difference(float(by_seed.mean()), interval, num_seeds, num_items)


def least_distinguishable(stdev: float, num_seeds: int) -> float:
    """How far apart the means of two arms must be for the interval of their difference to exclude 0.

    Half of that interval, where both arms vary from seed to seed with the standard deviation `stdev`, and
    independently of each other. What test items add is left out.
    """
    return _student(num_seeds) * stdev * math.sqrt(2 / num_seeds)


def _resamples(num_items: int, count: int, seed: int) -> Iterator[np.ndarray]:
    """`count` times how often each item is drawn, float64 [some, N], at most 64 MiB at once."""
    random = np.random.default_rng(seed)
    at_once = max(_WEIGHTS_AT_ONCE // num_items, 1)
    for start in range(0, count, at_once):
        drawn = random.multinomial(num_items, np.full(num_items, 1 / num_items), min(at_once, count - start))
        yield drawn.astype(np.float64)


def _of_two_seeds(covariances_SS: np.ndarray) -> float:
    """The mean covariance of two different seeds; at least 0, since it is used as a variance."""
    seeds = len(covariances_SS)
    between = covariances_SS.sum() - np.trace(covariances_SS)
    return max(float(between / (seeds * (seeds - 1))), 0.0)


def _half_width(by_seed: np.ndarray, of_items: float, num_items: int | None) -> float:
    of_seeds = by_seed.var(ddof=1) / len(by_seed)
    variance = of_seeds + of_items
    if not variance:
        return 0.0
    weighted = of_seeds * _student(len(by_seed))
    if num_items and of_items:  # of one item there is no variance, and no quantile
        weighted += of_items * _student(num_items)
    return float(weighted / np.sqrt(variance))


def _student(size: int) -> float:
    return float(stats.t.ppf((1 + _CONFIDENCE) / 2, size - 1))
