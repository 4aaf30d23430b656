"""Turns outputs of a model into labels with probabilities, or into numbers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.finetuning.config import HeadKind


def decide(kind: HeadKind, outputs: np.ndarray) -> np.ndarray:
    """int64 [R] label ids, or float32 [R] numbers in regression, from outputs [R, L]."""
    return outputs[:, 0] if kind == "regression" else outputs.argmax(-1)


def describe(kind: HeadKind, labels: Sequence[str], outputs: np.ndarray) -> Iterator[dict[str, Any]]:
    """The prediction for each row: `label` and the `probabilities` of all labels, or a number as `value`.

    They are yielded one by one, since those of many rows with many labels may not fit into memory.
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
