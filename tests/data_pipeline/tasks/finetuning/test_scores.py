"""Scores: those of scikit-learn and of each task's own definition; predictions that say nothing are named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from data_pipeline.tasks.finetuning import scores as scorers
from data_pipeline.tasks.finetuning.scores import find_degenerate_classes, find_degenerate_values
from data_pipeline.tasks.ranking import find_degenerate_scores, score_rankings
from data_pipeline.tasks.relation import semeval_f1

RELATIONS = ("Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)", "Other", "Made-From(e1,e2)", "Made-From(e2,e1)")


def score(names: tuple[str, ...], targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    return {name: getattr(scorers, name)(targets, predictions) for name in names}


def pairs(largest: int) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    numbers = st.tuples(st.integers(0, largest), st.integers(0, largest))
    return st.lists(numbers, min_size=2, max_size=60).map(lambda rows: tuple(np.array(rows).T))


@settings(max_examples=60, deadline=None)
@given(pairs(1))
def test_two_classes_by_their_definitions(rows):
    targets, predictions = rows
    scores = score(("accuracy", "f1", "matthews"), targets, predictions)
    hit = int(((targets == 1) & (predictions == 1)).sum())
    miss = int(((targets == 1) & (predictions == 0)).sum())
    alarm = int(((targets == 0) & (predictions == 1)).sum())
    rest = len(targets) - hit - miss - alarm
    root = np.sqrt(float((hit + alarm) * (hit + miss) * (rest + alarm) * (rest + miss)))
    assert scores["accuracy"] == pytest.approx((hit + rest) / len(targets))
    assert scores["f1"] == pytest.approx(2 * hit / max(2 * hit + miss + alarm, 1))
    assert scores["matthews"] == pytest.approx((hit * rest - alarm * miss) / root if root else 0)


@settings(max_examples=60, deadline=None)
@given(pairs(4))
def test_many_classes_agree_with_scikit_learn(rows):
    targets, predictions = rows
    scores = score(("accuracy", "macro_f1", "matthews"), targets, predictions)
    assert scores["accuracy"] == sklearn_metrics.accuracy_score(targets, predictions)
    if np.ptp(targets) and np.ptp(predictions):
        assert scores["matthews"] == sklearn_metrics.matthews_corrcoef(targets, predictions)
    report = sklearn_metrics.classification_report(targets, predictions, output_dict=True, zero_division=0)
    assert scores["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])


@settings(max_examples=60, deadline=None)
@given(pairs(4))
def test_semeval_counts_both_directions_of_a_relation_together(rows):
    """As in the task's own scorer, precision is over all predictions of the relation in either direction."""
    targets, predictions = rows
    f1s = []
    for numbers in ([0, 1], [3, 4]):
        right = ((targets == predictions) & np.isin(targets, numbers)).sum()
        found, there = np.isin(predictions, numbers).sum(), np.isin(targets, numbers).sum()
        f1s.append(2 * right / (found + there) if found + there else 0)
    assert semeval_f1(targets, predictions, RELATIONS) == pytest.approx(np.mean(f1s))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=40, unique_by=lambda x: x[0])
)
def test_correlations_agree_with_numpy(rows):
    targets, predictions = np.array(rows).T
    predictions = np.round(predictions, 1)
    scores = score(("pearson", "spearman"), targets, predictions)
    if np.ptp(predictions) and np.std(targets) > 1e-3:
        assert scores["pearson"] == pytest.approx(np.corrcoef(targets, predictions)[0, 1], abs=1e-6)
        ranks = [np.array([(v < w).sum() + (v == w).sum() / 2 for w in v]) for v in (targets, predictions)]
        assert scores["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-6)


def test_constant_numbers_correlate_with_nothing():
    targets, constant = np.array([1.0, 2, 3]), np.full(3, 2.5)
    assert score(("pearson", "spearman"), targets, constant) == {"pearson": 0, "spearman": 0}


def test_rankings_of_known_order():
    relevance = [np.array([0, 1, 0, 1.0]), np.array([1.0, 0]), np.array([0.0, 0])]
    scores = [np.array([4, 3, 2, 1.0]), np.array([0.9, 0.1]), np.array([1.0, 2])]
    found = score_rankings(relevance, scores, cutoff=2)
    ndcg = (1 / np.log2(3)) / (1 + 1 / np.log2(3))
    assert found == pytest.approx(
        {"mrr": (1 / 2 + 1) / 3, "recall@1": 1 / 3, "recall@2": 1.5 / 3, "ndcg@2": (ndcg + 1) / 3}
    )


judged = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=2, max_size=12)


def literal_ranking(
    relevance: list[int], scores: list[int], cutoff: int
) -> tuple[float, float, float, float]:
    """mrr, recall@1, recall@k, ndcg@k of one query; ties are ranked worst first, for ndcg averaged."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], relevance[i]))
    is_right = [relevance[i] > 0 for i in order]
    right = max(sum(is_right), 1)
    mrr = 1 / (is_right.index(True) + 1) if any(is_right) else 0.0
    weights = [1 / np.log2(rank + 2) if rank < cutoff else 0.0 for rank in range(len(scores))]
    gain = 0.0
    for tied in set(scores):
        places = [rank for rank, i in enumerate(order) if scores[i] == tied]
        mean = sum(relevance[order[rank]] for rank in places) / len(places)
        gain += mean * sum(weights[rank] for rank in places)
    best = sum(w * r for w, r in zip(weights, sorted(relevance, reverse=True), strict=True))
    return mrr, is_right[0] / right, sum(is_right[:cutoff]) / right, gain / best if best else 0.0


@settings(max_examples=100, deadline=None)
@given(st.lists(judged, min_size=1, max_size=8), st.integers(2, 10))
def test_rankings_by_their_definitions(queries, cutoff):
    columns = [tuple(zip(*query, strict=True)) for query in queries]
    expected = np.mean([literal_ranking(*column, cutoff) for column in columns], axis=0)
    arrays = [tuple(map(np.array, column)) for column in columns]
    found = score_rankings([a for a, _ in arrays], [b for _, b in arrays], cutoff)
    assert list(found) == ["mrr", "recall@1", f"recall@{cutoff}", f"ndcg@{cutoff}"]
    assert tuple(found.values()) == pytest.approx(tuple(expected))


def test_equal_scores_gain_nothing_from_the_order_of_the_file():
    found = score_rankings([np.array([1.0, 0, 0])], [np.zeros(3)])
    assert found["mrr"] == pytest.approx(1 / 3)
    assert found["recall@1"] == 0
    assert find_degenerate_scores([np.zeros(3)]) is not None
    assert find_degenerate_scores([np.zeros(3), np.arange(3)]) is None


def test_constant_classes_are_named():
    targets = np.array([1, 1, 1, 0])
    words = ("no", "yes")
    assert "every prediction is yes, the commonest label (75.0% of" in str(
        find_degenerate_classes(targets, np.ones(4, int), words)
    )
    assert find_degenerate_classes(targets, np.zeros(4, int), words) == (
        "every prediction is no, which is right for 25.0% of the examples"
    )
    assert find_degenerate_classes(targets, np.array([1, 1, 1, 0]), words) is None
    assert find_degenerate_classes(np.array([1]), np.array([1]), words) is None


def test_nearly_constant_values_are_named():
    targets = np.array([0.0, 2.5, 5.0])
    assert "every prediction is about 2.6" in str(
        find_degenerate_values(targets, np.array([2.6, 2.601, 2.599]))
    )
    assert find_degenerate_values(targets, np.array([2.4, 2.5, 2.7])) is None
