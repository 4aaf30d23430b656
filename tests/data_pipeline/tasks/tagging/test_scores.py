"""Scores of entities against conlleval's rules of where one begins and ends, written out anew."""

from collections import Counter

import numpy as np
import pytest

from data_pipeline.tasks.tagging.scores import report_entities, report_words, score_entities, score_words

TAGS = ["O", "O", "B-LOC", "I-LOC", "I-LOC", "B-地-名", "I-地-名", "I-地-名"]


def chunks(tags: list[str]) -> set[tuple[int, int, str]]:
    """(first word, last word, type): B- begins one, and so does I- unless it goes on with the same type."""
    found, start = set(), None
    for place, tag in enumerate([*tags, "O"]):
        before = tags[place - 1] if place else "O"
        goes_on = tag[0] == "I" and before != "O" and before[2:] == tag[2:]
        if before != "O" and not goes_on:
            found.add((start, place - 1, before[2:]))
        if tag != "O" and not goes_on:
            start = place
    return found


def literal_scores(gold, predicted) -> dict[str, tuple[float, float, float, int]]:
    """(precision, recall, f1, number in gold) in percent of each type, and of all as ""."""
    right, of_gold, of_predicted = Counter(), Counter(), Counter()
    for golds, predictions in zip(gold, predicted, strict=True):
        for counter, entities in (
            (of_gold, chunks(golds)),
            (of_predicted, chunks(predictions)),
            (right, chunks(golds) & chunks(predictions)),
        ):
            counter.update(kind for *_, kind in entities)
            counter[""] += len(entities)
    scores = {}
    for kind in {"", *of_gold, *of_predicted}:
        precision = 100 * right[kind] / of_predicted[kind] if of_predicted[kind] else 0.0
        recall = 100 * right[kind] / of_gold[kind] if of_gold[kind] else 0.0
        f1 = 2 * precision * recall / (precision + recall) if right[kind] else 0.0
        scores[kind] = (precision, recall, f1, of_gold[kind])
    return scores


def random_tags(rng: np.random.Generator) -> list[list[str]]:
    return [rng.choice(TAGS, length).tolist() for length in rng.integers(1, 9, 60)]


@pytest.mark.parametrize("seed", range(20))
def test_scores_are_those_of_conlleval_for_any_tags(seed):
    rng = np.random.default_rng(seed)
    gold = random_tags(rng)
    predicted = [[tag if rng.random() < 0.7 else str(rng.choice(TAGS)) for tag in s] for s in gold]
    expected = literal_scores(gold, predicted)
    assert tuple(score_entities(gold, predicted).values()) == pytest.approx(expected.pop("")[:3])
    report = report_entities(gold, predicted)
    assert list(report) == sorted(expected)
    for kind, scores in report.items():
        assert tuple(scores.values()) == pytest.approx(expected[kind])


def test_no_entities_score_zero():
    assert score_entities([("O",)], [("O",)]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert report_entities([("O",)], [("O",)]) == {}
    assert report_entities([("O",)], [("B-X",)]) == {
        "X": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    }


def test_words_are_scored_one_by_one():
    gold, predicted = [("NN", "VB"), ("NN", "O")], [("NN", "NN"), ("NN", "JJ")]
    assert score_words(gold, predicted) == pytest.approx({"accuracy": 50, "macro_f1": 80 / 4})
    assert report_words(gold, predicted) == {
        "JJ": {"precision": 0, "recall": 0, "f1": 0, "support": 0},
        "NN": {"precision": pytest.approx(200 / 3), "recall": 100, "f1": pytest.approx(80), "support": 2},
        "O": {"precision": 0, "recall": 0, "f1": 0, "support": 1},
        "VB": {"precision": 0, "recall": 0, "f1": 0, "support": 1},
    }
