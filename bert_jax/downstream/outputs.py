"""Gathers a model's outputs for rows, and writes predictions as JSON lines."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.task_data import Apply
from data_pipeline.atomic import atomically

if TYPE_CHECKING:
    from data_pipeline.tasks.rows import Rows


def outputs_of(rows: "Rows", apply: Apply) -> np.ndarray:
    """float32 [R, L]: the model's outputs in the order of the rows; IMPOSSIBLE for missing choices."""
    from bert_jax.finetuning.predict import gather

    parts = apply(rows)
    if rows.sequences_per_row > 1:
        parts = _widen(parts, rows.sequences_per_row)
    return gather(parts, len(rows))


def _widen(
    parts: Iterable[tuple[np.ndarray, np.ndarray]], width: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores [R, C] of batches, where C differs from batch to batch, padded to [R, width]."""
    from bert_jax.finetuning.heads import IMPOSSIBLE

    for numbers, scores in parts:
        missing = width - scores.shape[1]
        yield numbers, np.pad(scores, ((0, 0), (0, missing)), constant_values=IMPOSSIBLE)


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines atomically."""
    with atomically(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
