"""Outputs of a model to labels with probabilities, or to numbers."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from bert_jax.finetuning.config import HeadKind


def decide(kind: "HeadKind", outputs: np.ndarray) -> np.ndarray:
    """int64 [R] of labels, or float32 [R] of numbers, from outputs [R, L]."""
    return outputs[:, 0] if kind == "regression" else outputs.argmax(-1)


def describe(kind: "HeadKind", labels: Sequence[str], outputs: np.ndarray) -> Iterator[dict[str, Any]]:
    """What to say of each row: its `label` and the `probabilities` of all, or its number as `value`.

    One row after the other: of many rows with many labels each, memory could not hold all at once.
    """
    for row in outputs:
        if kind == "regression":
            yield {"value": float(row[0])}
            continue
        shifted = np.exp(row - row.max())
        shares = (shifted / shifted.sum()).tolist()
        yield {
            "label": labels[int(row.argmax())],
            "probabilities": {label: round(p, 6) for label, p in zip(labels, shares, strict=True)},
        }
