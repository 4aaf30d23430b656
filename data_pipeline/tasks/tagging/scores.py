"""Scores of tagged sentences, in percent: of whole entities, as conlleval counts them, or of single words."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

Tags = Sequence[Sequence[str]]
Report = dict[str, dict[str, float]]
"""Of each type or tag, sorted: `precision`, `recall`, `f1`, and `support`, its count in the gold tags."""


def score_entities(gold: Tags, predicted: Tags) -> dict[str, float]:
    """`precision`, `recall` and `f1` over all entities; an entity is right if its words and its type are.

    An I- that follows no entity of its type begins one. A score whose denominator is 0 is 0.
    """
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    scores = precision_recall_fscore_support(
        _lists(gold), _lists(predicted), average="micro", zero_division=0
    )
    return {
        name: 100 * float(score) for name, score in zip(("precision", "recall", "f1"), scores, strict=False)
    }


def report_entities(gold: Tags, predicted: Tags) -> Report:
    """The scores of the entities of each type."""
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    gold, predicted = _lists(gold), _lists(predicted)
    scores = precision_recall_fscore_support(gold, predicted, average=None, zero_division=0)
    return _report(sorted({kind for kind, *_ in get_entities(gold) + get_entities(predicted)}), scores)


def count_entities(gold: Tags, predicted: Tags) -> np.ndarray:
    """int32 [N, 3]: how many entities of each sentence are right, predicted and true, as `score_entities`
    counts them."""
    from seqeval.metrics.sequence_labeling import get_entities

    counts = []
    for truth, found in zip(_lists(gold), _lists(predicted), strict=True):
        true, guessed = set(get_entities(truth)), set(get_entities(found))
        counts.append((len(true & guessed), len(guessed), len(true)))
    return np.array(counts, np.int32)


def count_words(gold: Tags, predicted: Tags, tags: Sequence[str]) -> np.ndarray:
    """int32 [N, K, 3]: how many words of each sentence have each of K tags rightly, as said, and truly."""
    numbers = {tag: number for number, tag in enumerate(tags)}
    counts = np.zeros((len(gold), len(tags), 3), np.int32)
    for of_sentence, truth, found in zip(counts, gold, predicted, strict=True):
        for true, guessed in zip(truth, found, strict=True):
            of_sentence[numbers[guessed], 0] += true == guessed
            of_sentence[numbers[guessed], 1] += 1
            of_sentence[numbers[true], 2] += 1
    return counts


def score_words(gold: Tags, predicted: Tags) -> dict[str, float]:
    """`accuracy`, and `macro_f1`, the mean F1 over the tags that occur in gold or predicted."""
    from sklearn.metrics import accuracy_score, f1_score

    golds, predictions = _words(gold), _words(predicted)
    macro_f1 = f1_score(golds, predictions, average="macro", zero_division=0)
    return {"accuracy": 100 * float(accuracy_score(golds, predictions)), "macro_f1": 100 * float(macro_f1)}


def report_words(gold: Tags, predicted: Tags) -> Report:
    """The scores of the words of each tag."""
    from sklearn.metrics import precision_recall_fscore_support

    golds, predictions = _words(gold), _words(predicted)
    tags = sorted({*golds, *predictions})
    scores = precision_recall_fscore_support(golds, predictions, labels=tags, average=None, zero_division=0)
    return _report(tags, scores)


def _report(names: Sequence[str], scores: Iterable[np.ndarray]) -> Report:
    return {
        name: {"precision": 100 * float(p), "recall": 100 * float(r), "f1": 100 * float(f), "support": int(n)}
        for name, p, r, f, n in zip(names, *scores, strict=True)
    }


def _lists(tags: Tags) -> list[list[str]]:
    """The tags as lists of lists, which is all that seqeval accepts."""
    return [list(sentence) for sentence in tags]


def _words(tags: Tags) -> list[str]:
    return list(itertools.chain.from_iterable(tags))
