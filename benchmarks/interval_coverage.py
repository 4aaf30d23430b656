"""How often 95% intervals of `bert_jax.studies.statistics` hold the true difference of two simulated arms.

    python benchmarks/interval_coverage.py

For each situation and number of seeds: `coverage`, `width` (mean), and the same of the percentiles of the
multi-bootstrap, or of a bootstrap of seeds where each seed has one number. Prints JSON.
"""

import argparse
import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from bert_jax.studies.statistics import paired_difference
from bert_jax.studies.weighted_metrics import Statistic, matthews, mean

NUM_RESAMPLES = 400


class Situation(NamedTuple):
    """What two arms are like."""

    truth: float
    draw: Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]
    """(random, S, N) -> scores of baseline and treatment, [S, N, ...] or [S]."""
    statistic: Statistic = mean


def normal(seeds: float, items: float, both: float) -> Situation:
    """Differences whose effects of seed, of item and of both together have these standard deviations."""

    def draw(random: np.random.Generator, s: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        effects = random.normal(0, seeds, (s, 1)) + random.normal(0, items, (1, n))
        return np.zeros((s, n)), effects + random.normal(0, both, (s, n))

    return Situation(0.0, draw)


def right_or_wrong(seeds: float, statistic: Statistic = mean) -> Situation:
    """Answers that are right if a normal variable is positive; items are hard for both arms, or for one.

    Args:
      seeds: standard deviation of a seed's effect; that of an item is 1.1, that of an answer 1.
      statistic: mean of [S, N], or matthews of [S, N, 2] where 70% of the targets are 1.
    """
    means = 0.9, 1.1  # of the variable, for baseline and treatment

    def draw(random: np.random.Generator, s: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        hard, target = random.normal(0, 1, n), random.random(n) < 0.7
        arms = []
        for average in means:
            of_arm = hard + random.normal(0, 0.5, n) + random.normal(0, seeds, (s, 1))
            right = average + of_arm + random.normal(0, 1, (s, n)) > 0
            answers = np.stack(np.broadcast_arrays(np.where(right, target, ~target), target), axis=-1)
            arms.append(right.astype(float) if statistic is mean else answers.astype(float))
        return arms[0], arms[1]

    nodes, weights = np.polynomial.hermite_e.hermegauss(40)

    def expected(average: float) -> float:
        right = norm.cdf((average + seeds * nodes) / np.sqrt(2.25))
        if statistic is not mean:
            predicted = 0.7 * right + 0.3 * (1 - right)
            right = (0.7 * right - 0.7 * predicted) / np.sqrt(0.7 * 0.3 * predicted * (1 - predicted))
        return float((weights * right).sum() / weights.sum())

    return Situation(expected(means[1]) - expected(means[0]), draw, statistic)


def one_number(failures: float) -> Situation:
    """A number for each seed; this fraction of the treatment's seeds fails and is 10 deviations lower."""

    def draw(random: np.random.Generator, s: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        failed = random.random(s) < failures
        return np.zeros(s), random.normal(0, 1, s) - 10 * failed

    return Situation(-10 * failures, draw)


SITUATIONS = {
    "seeds_differ_most": normal(0.02, 0.05, 0.05),
    "seeds_and_items": normal(0.02, 0.2, 0.3),
    "items_differ_most": normal(0.0, 0.4, 0.1),
    "seed_and_item_interact": normal(0.0, 0.0, 0.5),
    "accuracy_similar_seeds": right_or_wrong(0.02),
    "accuracy_unlike_seeds": right_or_wrong(0.2),
    "matthews": right_or_wrong(0.1, matthews),
    "one_number_per_seed": one_number(0.0),
    "one_number_tenth_fails": one_number(0.1),
}


def percentiles(
    baseline: np.ndarray, treatment: np.ndarray, statistic: Statistic, random: np.random.Generator
) -> tuple[float, float]:
    """The 2.5 and 97.5 percentiles of the multi-bootstrap."""
    draws = (treatment - baseline)[None]
    if baseline.ndim > 1:
        n = baseline.shape[1]
        weights = random.multinomial(n, np.full(n, 1 / n), NUM_RESAMPLES).astype(float)
        draws = statistic(treatment, weights) - statistic(baseline, weights)
    s = len(baseline)
    seeds = random.multinomial(s, np.full(s, 1 / s), NUM_RESAMPLES)
    low, high = np.percentile((draws * seeds).sum(axis=1) / s, [2.5, 97.5])
    return float(low), float(high)


def measure(situation: Situation, seeds: int, items: int, trials: int) -> dict[str, float]:
    """Coverage and mean width of both kinds of interval."""
    random = np.random.default_rng(seeds)
    intervals = np.zeros((2, trials, 2))
    for trial in range(trials):
        arms = situation.draw(random, seeds, items)
        found = paired_difference(
            *arms, situation.statistic, num_resamples=NUM_RESAMPLES, seed=int(random.integers(1 << 32))
        )
        assert found.interval is not None
        intervals[:, trial] = found.interval, percentiles(*arms, situation.statistic, random)
    low, high = np.moveaxis(intervals, -1, 0)
    coverage = ((low <= situation.truth) & (situation.truth <= high)).mean(axis=1)
    width = (high - low).mean(axis=1)
    values = (coverage[0], width[0], coverage[1], width[1])
    names = ("coverage", "width", "percentiles_coverage", "percentiles_width")
    return {name: round(float(value), 4) for name, value in zip(names, values, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="of each situation and number of seeds")
    parser.add_argument("--items", type=int, default=300, help="of the test set")
    parser.add_argument("--seeds", type=int, nargs="+", default=(3, 5, 10))
    args = parser.parse_args()
    results = {
        name: {s: measure(situation, s, args.items, args.trials) for s in args.seeds}
        for name, situation in SITUATIONS.items()
    }
    print(json.dumps({"trials": args.trials, "items": args.items, "situations": results}, indent=2))


if __name__ == "__main__":
    main()
