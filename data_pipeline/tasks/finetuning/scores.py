"""Scores of predicted classes and numbers, and checks for predictions that are all the same.

Classes are int [R], numbers float [R]. Scores are from 0 to 1, or from -1 to 1 for matthews, pearson and
spearman, which are 0 if predictions or targets are constant.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

Scorer: TypeAlias = Callable[[np.ndarray, np.ndarray], float]
"""(targets [R], predictions [R]) -> a score."""
Items: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(targets [R], predictions [R]) -> how the score is made of single rows, [R, ...]."""

# Predicted numbers whose standard deviation is at most this fraction of the targets' count as constant.
_CONSTANT_SPREAD = 0.01


def find_degenerate_classes(
    targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]
) -> str | None:
    """A one-sentence warning if every prediction is the same class, else None.

    Args:
      targets, predictions: int [R].
    """
    if len(predictions) < 2 or np.ptp(predictions):
        return None
    predicted = int(predictions[0])
    counts = np.bincount(targets, minlength=len(labels))
    fraction = counts[predicted] / len(targets)
    if predicted == counts.argmax():
        return (
            f"every prediction is {labels[predicted]}, the commonest label ({fraction:.1%} of the examples): "
            f"the model has learned nothing beyond it"
        )
    return f"every prediction is {labels[predicted]}, which is right for {fraction:.1%} of the examples"


def find_degenerate_values(targets: np.ndarray, predictions: np.ndarray) -> str | None:
    """A one-sentence warning if the predicted numbers hardly vary, else None.

    Args:
      targets, predictions: float [R].
    """
    if len(predictions) < 2 or np.std(predictions) > _CONSTANT_SPREAD * np.std(targets):
        return None
    return (
        f"every prediction is about {np.mean(predictions):.3g} (the mean of the targets is "
        f"{np.mean(targets):.3g}): the model does not tell examples apart"
    )


def accuracy(targets: np.ndarray, predictions: np.ndarray) -> float:
    return float(are_right(targets, predictions).mean())


def f1(targets: np.ndarray, predictions: np.ndarray) -> float:
    """F1 of class 1 in a task with two classes."""
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predictions, pos_label=1, average="binary", zero_division=0))


def macro_f1(targets: np.ndarray, predictions: np.ndarray) -> float:
    """Mean F1 over the classes that occur in targets or predictions."""
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predictions, average="macro", zero_division=0))


def matthews(targets: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(targets, predictions)) if _both_vary(targets, predictions) else 0.0


def pearson(targets: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import pearsonr

    if not _both_vary(targets, predictions):
        return 0.0
    return float(pearsonr(targets.astype(np.float64), predictions.astype(np.float64)).statistic)


def spearman(targets: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(targets, predictions).statistic) if _both_vary(targets, predictions) else 0.0


def are_right(targets: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """float64 [R]: 1 where the class is right, else 0; their mean is the accuracy."""
    return (targets == predictions).astype(np.float64)


def pairs(targets: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """[R, 2]: each prediction and its target, of which the other scores here are made."""
    return np.stack([predictions, targets], axis=-1)


def _both_vary(targets: np.ndarray, predictions: np.ndarray) -> bool:
    return bool(np.ptp(targets) > 0 and np.ptp(predictions) > 0)
