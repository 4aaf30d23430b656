"""Fine-tuned models side by side: what each pretrained model reached on each task."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.finetuning.finetuned import RESULTS_FILE, find_cell
from bert_jax.finetuning.record import read_record
from data_pipeline.errors import UserError, bad_input


@dataclasses.dataclass(frozen=True)
class Score:
    """What `bert-jax finetune` left of one task."""

    folder: Path
    task: str
    model: str
    """Name of the pretrained model: its folder's, in earlier records of a run the experiment's."""
    fingerprint: str
    """Hash of the pretrained parameters: many models lie in a folder called `export`."""
    metric: str
    row: dict[str, Any]
    """The hyperparameters with the best mean over their seeds: `mean`, `stdev`, `seeds`, ..."""
    cells: list[dict[str, Any]]
    """Every finished cell: its hyperparameters and seed, and all its `figures`."""


def read_score(folder: Path) -> Score:
    """Raises UserError if the folder is not that of a finished `bert-jax finetune`."""
    path = folder / RESULTS_FILE
    record = read_record(find_cell(folder))
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        metric, rows, cells = results["metric"], results["rows"], results["cells"]
        row = max(rows, key=lambda row: (row["mean"] is not None, row["mean"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise bad_input(error, path, f"{path} is not what `bert-jax finetune` writes: {error!r}") from None
    if row["mean"] is None:
        raise UserError(f"{folder}: a seed of every cell diverged; there is no score to report")
    return Score(folder, record.task, record.trained_from, record.model_fingerprint, metric, row, cells)


def by_model(scores: Sequence[Score]) -> dict[str, dict[str, Score]]:
    """Model -> task -> score; a model fine-tuned twice on a task counts as two, named by their folders.

    One that has several names, as copies and earlier records have, goes by the first.
    """
    times = Counter((score.fingerprint, score.task) for score in scores)
    names: dict[str, str] = {}
    for score in scores:
        names.setdefault(score.fingerprint, score.model)
    namesakes = Counter(names.values())
    found: dict[str, dict[str, Score]] = {}
    for score in scores:
        name = names[score.fingerprint]
        if namesakes[name] > 1:
            name += f" {score.fingerprint[:8]}"
        if times[score.fingerprint, score.task] > 1:
            name += f" ({score.folder})"
        found.setdefault(name, {})[score.task] = score
    return found


def table(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """One row for each finished cell, for a file: `score` is what it is chosen by, and all figures follow."""
    return [
        {
            "run": str(score.folder),
            "model": score.model,
            "model_fingerprint": score.fingerprint[:12],
            "task": score.task,
            **{name: cell[name] for name in ("learning_rate", "batch_size", "epochs", "seed")},
            "metric": score.metric,
            "score": cell["figures"][score.metric],
            **cell["figures"],
        }
        for score in scores
        for cell in score.cells
    ]
