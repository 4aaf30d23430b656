"""Metrics by name, and checks for predictions that are all the same."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from data_pipeline.tasks.names import MetricName

# Predicted numbers whose standard deviation is at most this share of the targets' count as constant.
_CONSTANT_SPREAD = 0.01
_OTHER = "Other"


def score(
    names: Sequence[MetricName],
    targets: np.ndarray,
    predictions: np.ndarray,
    labels: Sequence[str] = (),
) -> dict[str, float]:
    """The value of each metric.

    Args:
      targets, predictions: int [R] of classes, or float [R] in pearson and spearman.
      labels: the words of the classes, which semeval_f1 needs.

    Returns:
      values from 0 to 1, or from -1 to 1 for matthews, pearson and spearman, which are 0 if predictions or
      targets are constant.
    """
    return {name: float(_METRICS[name](targets, predictions, labels)) for name in names}


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
    share = counts[predicted] / len(targets)
    if predicted == counts.argmax():
        return (
            f"every prediction is {labels[predicted]}, the commonest label ({share:.1%} of the examples): "
            f"the model has learnt nothing beyond it"
        )
    return f"every prediction is {labels[predicted]}, which is right for {share:.1%} of the examples"


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


def _accuracy(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(targets, predictions)


def _f1(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    """F1 of class 1 in a task with two classes."""
    from sklearn.metrics import f1_score

    return f1_score(targets, predictions, pos_label=1, average="binary", zero_division=0)


def _macro_f1(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    """Mean F1 over the classes that occur in targets or predictions."""
    from sklearn.metrics import f1_score

    return f1_score(targets, predictions, average="macro", zero_division=0)


def _matthews(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(targets, predictions) if _both_vary(targets, predictions) else 0.0


def _pearson(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    from scipy.stats import pearsonr

    return pearsonr(targets, predictions).statistic if _both_vary(targets, predictions) else 0.0


def _spearman(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    from scipy.stats import spearmanr

    return spearmanr(targets, predictions).statistic if _both_vary(targets, predictions) else 0.0


def _both_vary(targets: np.ndarray, predictions: np.ndarray) -> bool:
    return bool(np.ptp(targets) > 0 and np.ptp(predictions) > 0)


def _semeval_f1(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    """Mean F1 over relations other than Other (SemEval-2010 Task 8).

    A relation in the wrong direction is wrong, but its two directions share one F1, as in the task's own
    scorer.
    """
    from sklearn.metrics import f1_score

    directions: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        if label != _OTHER:
            directions.setdefault(label.partition("(")[0], []).append(number)
    scores = [
        f1_score(targets, predictions, labels=numbers, average="micro", zero_division=0)
        for numbers in directions.values()
    ]
    return float(np.mean(scores))


_METRICS: Mapping[MetricName, Callable[[np.ndarray, np.ndarray, Sequence[str]], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
    "semeval_f1": _semeval_f1,
}
