"""Metrics of a model under weights of the items that it is tested on, from what each item adds to them.

A resampling of the items is such a weighting: how often each is drawn. With weights of 1 a metric is the one
that `bert-jax finetune` reports.

Shapes: S seeds, N items, R weightings, K classes.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from bert_jax.objectives.language_model import LARGEST_LOSS
from bert_jax.study import HELDOUT_METRICS

Statistic: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A metric of every seed for several weightings of the items.

Takes scores or predictions [S, N, ...] and float64 weights [R, N], how often each item counts; returns
float64 [R, S].
"""

# A variance of at most this fraction of the mean square is the rounding error of a constant.
_ROUNDING = 1e-12


def mean(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` of metrics that are means over items, such as accuracy: of scores [S, N]."""
    return _sums(scores, weights) / weights.sum(axis=1, keepdims=True)


def f1(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` F1 of class 1; 0 where it is neither predicted nor right.

    Args:
      outcomes: 0 or 1 [S, N, 2], predictions and targets.
      weights: [R, N].
    """
    predicted, target = np.moveaxis(outcomes, -1, 0)
    return _f1(*(_sums(items, weights) for items in (predicted * target, predicted, target)))


def macro_f1(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` macro F1.

    Mean F1 over the classes that occur, predicted or true, among items of nonzero weight.

    Args:
      outcomes: classes [S, N, 2], predictions and targets.
      weights: [R, N].
    """
    return _mean_of_occurring(_counts_of_classes(outcomes, weights))


def matthews(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` Matthews correlation of classes, with the arguments of `macro_f1`.

    Of more than two classes it is Gorodkin's (2004), as in scikit-learn. It is 0 where either is constant.
    """
    counts = _counts_of_classes(outcomes, weights) / weights.sum(axis=1)[:, None, None, None]
    right, predicted, target = np.moveaxis(counts, -1, 0)
    covariance = right.sum(-1) - (predicted * target).sum(-1)
    variances = (1 - (predicted**2).sum(-1)) * (1 - (target**2).sum(-1))
    return _ratio(covariance, np.sqrt(np.maximum(variances, 0)))


def pearson(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` Pearson correlation; 0 where either is constant.

    Args:
      outcomes: numbers [S, N, 2], predictions and targets.
      weights: [R, N].
    """
    # Less the first item, constants are exactly 0, and a large mean does not swallow the variance.
    x, y = np.moveaxis((outcomes.astype(np.float64) - outcomes[:, :1]), -1, 0)
    means = [mean(numbers, weights) for numbers in (x, y, x * y, x * x, y * y)]
    return _correlation(*means)


def spearman(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` Spearman correlation: Pearson's of ranks, with the arguments of `pearson`.

    An item of weight w has the rank that w equal items would have: equal items, be they one item drawn
    several times or several with the same number, all have the mean of the places that they take up. So the
    ranks of a weighting are those of the sample that it stands for, and not those of all items.
    """
    found = [
        _correlation(*_moments(_ranks(predicted, weights), _ranks(target, weights), weights))
        for predicted, target in np.moveaxis(outcomes, -1, 1)
    ]
    return np.stack(found, axis=-1)


def ratio(parts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` ratio of two sums over items, such as of right words to words: of parts [S, N, 2]."""
    top, bottom = np.moveaxis(parts, -1, 0)
    return _ratio(_sums(top, weights), _sums(bottom, weights))


def exp_ratio(parts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` perplexity: exp of the `ratio` of losses, in nats, to their number, limited as metrics
    are."""
    return np.exp(np.minimum(ratio(parts, weights), LARGEST_LOSS))


def f1_of_counts(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` F1 of entities: of how many each item has [S, N, 3], right, predicted and true."""
    return _f1(*(_sums(of_items, weights) for of_items in np.moveaxis(counts, -1, 0)))


def macro_f1_of_counts(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The `Statistic` of `macro_f1` where items have several classes each: of [S, N, K, 3], the counts of
    `f1_of_counts` for each of K classes."""
    return _mean_of_occurring(_sums_of_counts(counts, weights))


def mean_f1_of_counts(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """As `macro_f1_of_counts`, but classes that do not occur count, with an F1 of 0."""
    return _f1(*np.moveaxis(_sums_of_counts(counts, weights), -1, 0)).mean(axis=-1)


RATIOS = (
    "accuracy",
    "precision",
    "recall",
    *(f"{of}_{what}" for of in ("HasAns", "NoAns") for what in ("exact", "f1")),
)
"""Metrics that are a `ratio` where their items are [N, 2]."""

STATISTICS: Mapping[str, Mapping[str, Statistic]] = {
    "[N, 2]": {
        "f1": f1,
        "macro_f1": macro_f1,
        "matthews": matthews,
        "pearson": pearson,
        "spearman": spearman,
        **dict.fromkeys(RATIOS, ratio),
        **{name: exp_ratio if name.endswith("perplexity") else ratio for name in HELDOUT_METRICS},
    },
    "[N, 3]": {"f1": f1_of_counts},
    "[N, K, 3]": {"macro_f1": macro_f1_of_counts, "semeval_f1": mean_f1_of_counts},
}
"""Form of a metric's items (`bert_jax.tasks.finetuning.task.Outcome.items`) -> its name -> its `Statistic`.

Of items [N] it is the `mean`, whatever the name.
"""


def statistic_of(metric: str, items: np.ndarray) -> Statistic | None:
    """The `Statistic` of a metric; None if nothing is known that makes it of items of this form.

    Args:
      metric: its name, such as "f1".
      items: of one seed [N, ...].
    """
    if items.ndim == 1:
        return mean
    form = f"[N, {'K, ' * (items.ndim - 2)}{items.shape[-1]}]"
    return STATISTICS.get(form, {}).get(metric)


def _sums(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64 [R, S], of scores [S, N]."""
    return weights @ scores.T.astype(np.float64)


def _counts_of_classes(outcomes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64 [R, S, K, 3]: how often each class that occurs is right, is predicted, and is the target."""
    counts = []
    for number in np.unique(outcomes):
        predicted, target = np.moveaxis(outcomes == number, -1, 0)
        counts.append([_sums(items, weights) for items in (predicted & target, predicted, target)])
    return np.moveaxis(np.array(counts), (0, 1), (-2, -1))


def _sums_of_counts(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64 [R, S, K, 3], of [S, N, K, 3]."""
    return np.einsum("rn,snkc->rskc", weights, counts.astype(np.float64), optimize=True)


def _f1(right: np.ndarray, predicted: np.ndarray, target: np.ndarray) -> np.ndarray:
    return _ratio(2 * right, predicted + target)


def _mean_of_occurring(counts: np.ndarray) -> np.ndarray:
    """[R, S]: the mean F1 of the classes that occur, of [R, S, K, 3]."""
    right, predicted, target = np.moveaxis(counts, -1, 0)
    occurs = (predicted + target > 0).sum(axis=-1)
    return _ratio(_f1(right, predicted, target).sum(axis=-1), occurs.astype(np.float64))


def _ranks(numbers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[R, N]: for each weighting the rank of each number, of [N]."""
    order = np.argsort(numbers, kind="stable")
    _, starts, group = np.unique(numbers[order], return_index=True, return_inverse=True)
    of_group = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.cumsum(of_group, axis=1) - of_group / 2
    # Less the middle, so that the means in the correlation are near 0.
    ranks -= weights.sum(axis=1, keepdims=True) / 2
    found = np.empty_like(weights, np.float64)
    found[:, order] = ranks[:, group]
    return found


def _moments(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> list[np.ndarray]:
    """[R] each: weighted means of x, y, xy, x^2 and y^2, of [R, N]."""
    total = weights.sum(axis=1)
    return [np.einsum("rn,rn->r", weights, numbers) / total for numbers in (x, y, x * y, x * x, y * y)]


def _correlation(x: np.ndarray, y: np.ndarray, xy: np.ndarray, xx: np.ndarray, yy: np.ndarray) -> np.ndarray:
    """The correlation of x and y from their means and those of their products; 0 if either is constant."""
    of_x, of_y = xx - x * x, yy - y * y
    varies = (of_x > _ROUNDING * xx) & (of_y > _ROUNDING * yy)
    return _ratio(np.where(varies, xy - x * y, 0), np.sqrt(np.maximum(of_x * of_y, 0)))


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
