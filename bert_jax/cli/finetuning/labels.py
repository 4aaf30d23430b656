"""Outputs of a model to labels with probabilities, or to numbers; and those to files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.cli.finetuning.task_data import Apply
from data_pipeline.atomic import atomically

if TYPE_CHECKING:
    from bert_jax.finetuning.config import HeadKind
    from data_pipeline.tasks.rows import Rows


def outputs_of(rows: "Rows", apply: Apply) -> np.ndarray:
    """float32 [R, L]: the model's outputs in the order of the rows."""
    from bert_jax.finetuning.predict import gather

    return gather(apply(rows), len(rows))


def decide(kind: "HeadKind", outputs: np.ndarray) -> np.ndarray:
    """int64 [R] of labels, or float32 [R] of numbers, from outputs [R, L]."""
    return outputs[:, 0] if kind == "regression" else outputs.argmax(-1)


def describe(kind: "HeadKind", labels: Sequence[str], outputs: np.ndarray) -> list[dict[str, Any]]:
    """What to say of each row: its label and all probabilities, or its number."""
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


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines, whole or not at all."""
    with atomically(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
