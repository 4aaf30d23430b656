"""Metrics of rankings: how high the relevant candidates of each query are ranked."""

from collections.abc import Sequence

import numpy as np


def score_rankings(
    relevance: Sequence[np.ndarray], scores: Sequence[np.ndarray], cutoff: int = 10
) -> dict[str, float]:
    """Means of the metrics over queries; a query without a relevant candidate counts as 0.

    For mrr and recall, candidates of equal score are ranked worst first, so a model that gives all the same
    score gains nothing from the order of a file.

    Args:
      relevance: a float array [C] for each query; above 0 is relevant, more is better.
      scores: an array [C] for each query; the highest is ranked first. C is 2 or more.
      cutoff: k of recall@k and ndcg@k.

    Returns:
      mrr, recall@1, recall@k and ndcg@k, from 0 to 1. recall@k is the share of a query's relevant candidates
      that are among its first k; in ndcg a candidate adds relevance / log2(1 + rank).
    """
    from sklearn.metrics import ndcg_score

    rows = []
    for truth, score in zip(relevance, scores, strict=True):
        ranked = np.asarray(truth)[np.lexsort((truth, -np.asarray(score)))] > 0
        relevant = max(ranked.sum(), 1)
        first = ranked.argmax()
        rows.append(
            {
                "mrr": ranked[first] / (first + 1),
                "recall@1": ranked[:1].sum() / relevant,
                f"recall@{cutoff}": ranked[:cutoff].sum() / relevant,
                f"ndcg@{cutoff}": ndcg_score([truth], [score], k=cutoff),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def find_degenerate_scores(scores: Sequence[np.ndarray]) -> str | None:
    """A one-sentence warning if each query's candidates all have the same score, else None."""
    if any(np.ptp(score) > 0 for score in scores):
        return None
    return "every candidate has the same score as the others of its query: the model does not tell them apart"
