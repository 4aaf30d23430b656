"""Scores, in percent, of tagged sentences whose tags are of single words, not of entities."""

import itertools
from collections.abc import Sequence

Tags = Sequence[Sequence[str]]


def score_words(gold: Tags, predicted: Tags) -> dict[str, float]:
    """`accuracy`, and `macro_f1`, the mean F1 over the tags that occur in gold or predicted."""
    from sklearn.metrics import accuracy_score, f1_score

    golds, predictions = _words(gold), _words(predicted)
    macro_f1 = f1_score(golds, predictions, average="macro", zero_division=0)
    return {"accuracy": 100 * float(accuracy_score(golds, predictions)), "macro_f1": 100 * float(macro_f1)}


def report_words(gold: Tags, predicted: Tags) -> dict[str, dict[str, float]]:
    """For each tag, sorted, its `precision`, `recall`, `f1` and `support`, its number of gold words."""
    from sklearn.metrics import precision_recall_fscore_support

    golds, predictions = _words(gold), _words(predicted)
    tags = sorted({*golds, *predictions})
    scores = precision_recall_fscore_support(golds, predictions, labels=tags, average=None, zero_division=0)
    return {
        tag: {"precision": 100 * float(p), "recall": 100 * float(r), "f1": 100 * float(f), "support": int(n)}
        for tag, p, r, f, n in zip(tags, *scores, strict=True)
    }


def _words(tags: Tags) -> list[str]:
    return list(itertools.chain.from_iterable(tags))
