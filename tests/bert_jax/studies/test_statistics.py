"""Differences between arms: what they are of, and how often their intervals hold the truth."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.interval_coverage import SITUATIONS, measure
from bert_jax.studies.statistics import Difference, least_distinguishable, paired_difference
from bert_jax.studies.weighted_metrics import mean


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("seeds_differ_most", 3), ("seeds_differ_most", 10), ("items_differ_most", 3), ("matthews", 5)],
)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, seeds: int) -> None:
    found = measure(SITUATIONS[name], seeds, items=100, trials=200)
    # Three standard errors of 200 trials at 95% are 4.6%.
    assert 0.90 <= found["coverage"] <= 0.99, found


def test_percentiles_of_the_multi_bootstrap_miss_the_truth_with_three_seeds() -> None:
    found = measure(SITUATIONS["seeds_differ_most"], 3, items=100, trials=200)
    assert found["percentiles_coverage"] < 0.85


def test_one_number_per_seed_gives_students_paired_interval(random: np.random.Generator) -> None:
    baseline, treatment = random.normal(0, 1, (2, 5))
    found = paired_difference(baseline, treatment)
    expected = stats.ttest_rel(treatment, baseline).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert (found.num_seeds, found.num_items) == (5, None)


def test_seeds_that_agree_leave_the_interval_of_the_items(random: np.random.Generator) -> None:
    differences = np.tile(random.normal(0.1, 1, 400), (5, 1))
    found = paired_difference(np.zeros_like(differences), differences, num_resamples=4000)
    expected = stats.ttest_1samp(differences[0], 0).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high), abs=0.01)


def test_what_arms_have_in_common_does_not_widen_the_interval(random: np.random.Generator) -> None:
    common = random.normal(0, 10, (4, 1)) + random.normal(0, 10, (1, 200))
    baseline, treatment = random.normal(0, 1, (2, 4, 200))
    alone = paired_difference(baseline, treatment)
    together = paired_difference(baseline + common, treatment + common)
    assert together.interval == pytest.approx(alone.interval)


def test_a_difference_is_the_mean_over_seeds_and_known_if_0_is_outside() -> None:
    baseline = np.zeros((3, 40))
    treatment = np.tile([0.9, 1.1], (3, 20))
    found = paired_difference(baseline, treatment)
    assert found.mean == pytest.approx(1)
    assert found.is_distinguishable is True
    low, high = found.interval or (0, 0)
    assert 0.9 < low < 1 < high < 1.1
    assert paired_difference(treatment, baseline).is_distinguishable is True
    assert paired_difference(baseline, treatment - 1).is_distinguishable is False


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_give_no_interval(seeds: int) -> None:
    found = paired_difference(np.zeros((seeds, 40)), np.ones((seeds, 40)))
    assert found == Difference(1.0, None, seeds, 40)
    assert found.is_distinguishable is None


def test_the_same_scores_give_the_same_interval(random: np.random.Generator) -> None:
    arms = random.normal(0, 1, (2, 4, 3000))
    assert paired_difference(*arms) == paired_difference(*arms)


@pytest.mark.parametrize(
    ("baseline", "treatment", "message"),
    [
        (np.zeros((3, 4)), np.zeros((4, 4)), r"shapes \(3, 4\) and \(4, 4\)"),
        (np.zeros((3, 0)), np.zeros((3, 0)), "are not pairs"),
        (np.float64(1), np.float64(2), "are not pairs"),
        (np.zeros(3), np.array([1, np.nan, 2]), "not all finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    baseline: np.ndarray, treatment: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        paired_difference(baseline, treatment)


def test_of_means_the_interval_is_that_of_infinitely_many_draws(random: np.random.Generator) -> None:
    baseline, treatment = random.normal(0, 1, (2, 3, 500)) + random.normal(0, 1, (2, 1, 500))
    exact = paired_difference(baseline, treatment)
    drawn = paired_difference(
        baseline, treatment, lambda scores, weights: mean(scores, weights), num_resamples=20_000
    )
    assert exact.interval == pytest.approx(drawn.interval, rel=0.02)
    assert (exact.mean, exact.num_items) == (pytest.approx(drawn.mean), 500)


def test_the_least_difference_is_half_the_interval_of_arms_that_vary_alike() -> None:
    one, other = np.array([1.0, -1, 1, -1]), np.array([1.0, 1, -1, -1])  # uncorrelated
    low, high = paired_difference(one, other).interval or (0, 0)
    assert (high - low) / 2 == pytest.approx(least_distinguishable(one.std(ddof=1), 4))


def test_one_item_gives_the_interval_of_the_seeds_and_no_number_no_answer() -> None:
    found = paired_difference(np.zeros((3, 1)), np.array([[1.0], [1.1], [1.2]]))
    expected = stats.ttest_1samp([1.0, 1.1, 1.2], 0).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert not Difference(1.0, (float("nan"), float("nan")), 3, 1).is_distinguishable
