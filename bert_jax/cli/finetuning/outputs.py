"""What a model says of rows, gathered and written."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.cli.finetuning.task_data import Apply
from data_pipeline.atomic import atomically

if TYPE_CHECKING:
    from data_pipeline.tasks.rows import Rows


def outputs_of(rows: "Rows", apply: Apply) -> np.ndarray:
    """float32 [R, L]: the model's outputs in the order of the rows."""
    from bert_jax.finetuning.predict import gather

    return gather(apply(rows), len(rows))


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines, whole or not at all."""
    with atomically(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
