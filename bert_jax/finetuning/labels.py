"""Outputs of a model to labels with probabilities, or to numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from bert_jax.finetuning.config import HeadKind


def decide(kind: "HeadKind", outputs: np.ndarray) -> np.ndarray:
    """int64 [R] of labels, or float32 [R] of numbers, from outputs [R, L]."""
    return outputs[:, 0] if kind == "regression" else outputs.argmax(-1)


def describe(kind: "HeadKind", labels: Sequence[str], outputs: np.ndarray) -> list[dict[str, Any]]:
    """What to say of each row: its `label` and the `probabilities` of all, or its number as `value`."""
    if kind == "regression":
        return [{"value": float(value)} for value in outputs[:, 0]]
    shifted = np.exp(outputs - outputs.max(-1, keepdims=True))
    shares = shifted / shifted.sum(-1, keepdims=True)
    return [
        {
            "label": labels[int(row.argmax())],
            "probabilities": {label: round(float(p), 6) for label, p in zip(labels, row, strict=True)},
        }
        for row in shares
    ]
