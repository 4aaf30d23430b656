"""Scores of tagged sentences by whole entities, as conlleval counts them, in percent."""

from collections.abc import Sequence

Tags = Sequence[Sequence[str]]


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


def report_entities(gold: Tags, predicted: Tags) -> dict[str, dict[str, float]]:
    """For each type, sorted, its `precision`, `recall`, `f1` and `support`, its number of gold entities."""
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    gold, predicted = _lists(gold), _lists(predicted)
    scores = precision_recall_fscore_support(gold, predicted, average=None, zero_division=0)
    types = sorted({kind for kind, *_ in get_entities(gold) + get_entities(predicted)})
    return {
        kind: {"precision": 100 * float(p), "recall": 100 * float(r), "f1": 100 * float(f), "support": int(n)}
        for kind, p, r, f, n in zip(types, *scores, strict=True)
    }


def _lists(tags: Tags) -> list[list[str]]:
    """The tags as lists of lists, which is all that seqeval accepts."""
    return [list(sentence) for sentence in tags]
