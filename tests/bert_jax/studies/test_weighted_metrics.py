"""Metrics of weighted items: they are those of a sample in which each item occurs as often as it weighs."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from bert_jax.objectives.language_model import LARGEST_LOSS
from bert_jax.studies.statistics import paired_difference
from bert_jax.studies.weighted_metrics import (
    Statistic,
    exp_ratio,
    f1,
    f1_of_counts,
    macro_f1,
    macro_f1_of_counts,
    matthews,
    mean,
    mean_f1_of_counts,
    pearson,
    ratio,
    spearman,
    statistic_of,
)

SEEDS, ITEMS = 3, 50


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def macro(targets: np.ndarray, predictions: np.ndarray) -> float:
    return float(f1_score(targets, predictions, average="macro"))


def f1_of(counts: np.ndarray) -> np.ndarray:
    """The F1 of counts [N, ..., 3]."""
    right, predicted, true = np.moveaxis(counts.sum(0), -1, 0)
    return 2 * right / np.maximum(predicted + true, 1)


def occurring(counts: np.ndarray) -> float:
    return float(f1_of(counts)[counts.sum(0)[:, 1:].any(-1)].mean())


def of_targets(metric: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[np.ndarray], float]:
    return lambda pairs: metric(pairs[:, 1], pairs[:, 0])


def test_the_perplexity_of_large_losses_is_that_which_is_reported() -> None:
    assert exp_ratio(np.array([[[2000.0, 2.0]]]), np.ones((1, 1))) == np.exp(LARGEST_LOSS)


@pytest.mark.parametrize(
    ("statistic", "expected", "form", "highest"),
    [
        (mean, np.mean, (), 2),
        (f1, of_targets(f1_score), (2,), 2),
        (matthews, of_targets(matthews_corrcoef), (2,), 2),
        (matthews, of_targets(matthews_corrcoef), (2,), 5),
        (macro_f1, of_targets(macro), (2,), 30),
        (pearson, of_targets(lambda a, b: stats.pearsonr(a, b).statistic), (2,), 1000),
        (spearman, of_targets(lambda a, b: stats.spearmanr(a, b).statistic), (2,), 1000),
        (spearman, of_targets(lambda a, b: stats.spearmanr(a, b).statistic), (2,), 4),
        (ratio, lambda parts: parts[:, 0].sum() / parts[:, 1].sum(), (2,), 9),
        (exp_ratio, lambda parts: np.exp(parts[:, 0].sum() / parts[:, 1].sum()), (2,), 9),
        (f1_of_counts, f1_of, (3,), 4),
        (macro_f1_of_counts, occurring, (6, 3), 2),
        (mean_f1_of_counts, lambda counts: f1_of(counts).mean(), (6, 3), 2),
    ],
)
def test_a_weighted_metric_equals_that_of_repeated_items(
    random: np.random.Generator,
    statistic: Statistic,
    expected: Callable[[np.ndarray], float],
    form: tuple[int, ...],
    highest: int,
) -> None:
    items = random.integers(0, highest, (SEEDS, ITEMS, *form))
    if form == (6, 3):
        items[:, 3:, 5] = 0  # the sixth class is rare, so that it is missing from some samples
    counts = random.integers(0, 4, (4, ITEMS))
    counts[0, :3] = 0
    found = [[expected(np.repeat(seed, n, axis=0)) for seed in items] for n in counts]
    np.testing.assert_allclose(statistic(items, counts.astype(float)), found, rtol=1e-9)


@pytest.mark.parametrize("statistic", [f1, macro_f1, matthews, pearson, spearman, ratio])
def test_metrics_of_constant_predictions_are_0(statistic: Statistic) -> None:
    outcomes = np.zeros((3, 20, 2))
    outcomes[..., 1] = np.arange(20) % 2 if statistic is not f1 else 0
    constant = np.where(np.arange(2) == 0, 0.1, outcomes)  # not a number that is exact
    weights = np.random.default_rng(0).integers(0, 3, (5, 20)).astype(float)
    of_numbers = statistic in (pearson, spearman)
    found = statistic(constant if of_numbers else outcomes, weights)
    if statistic is macro_f1:  # of the two classes the one that is predicted has an F1
        assert (found <= 0.5).all()
    else:
        assert (found == 0).all()
    assert paired_difference(outcomes, outcomes, statistic).is_distinguishable is False


@pytest.mark.parametrize("statistic", [pearson, spearman])
def test_a_sample_of_equal_numbers_has_no_correlation(
    random: np.random.Generator, statistic: Statistic
) -> None:
    outcomes = random.normal(0, 1, (100, 6, 2))
    outcomes[:, 1:, 0] = outcomes[:, 1:2, 0]
    weights = np.array([[0.0, 3, 1, 2, 1, 3], [0, 1, 1, 1, 2, 2]])
    assert (statistic(outcomes, weights) == 0).all()


def test_a_correlation_is_exact_far_from_0(random: np.random.Generator) -> None:
    outcomes = random.normal(0, 1, (SEEDS, ITEMS, 2))
    np.testing.assert_allclose(
        pearson(outcomes + 1e6, np.ones((1, ITEMS))), pearson(outcomes, np.ones((1, ITEMS))), atol=1e-8
    )


def test_the_form_of_items_tells_metrics_of_one_name_apart() -> None:
    found = {form: statistic_of("f1", np.zeros(form)) for form in ((9,), (9, 2), (9, 3))}
    assert found == {(9,): mean, (9, 2): f1, (9, 3): f1_of_counts}
    assert statistic_of("macro_f1", np.zeros((9, 4, 3))) is macro_f1_of_counts
    assert statistic_of("accuracy", np.zeros((9, 4, 3))) is None
