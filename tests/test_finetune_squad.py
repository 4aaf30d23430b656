"""SQuAD's metrics, files and null threshold, for a model whose scores are known."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_pipeline.tasks.finetuning.rows import Rows
from tests.bert_jax.tasks.loaded import load
from tests.data_pipeline.tasks.files import squad_json

PASSAGE = "the cat sat on a mat"
QUESTIONS: list[dict[str, Any]] = [
    {"id": "answered", "question": "who", "answers": [{"text": "cat sat", "answer_start": 4}]},
    {"id": "impossible", "question": "who", "answers": [], "is_impossible": True},
]
# A piece is a letter, so the answer stands behind [CLS] who [SEP] the.
START, END = 8, 13


@pytest.mark.parametrize(
    ("task", "null_odds", "metrics", "texts", "learnt", "degenerate"),
    [
        ("squad", [10], {"exact_match": 100, "f1": 100}, ["cat sat"], {}, None),
        (
            "squad2",
            [4, 10],
            {"f1": 100, "HasAns_f1": 100, "NoAns_f1": 100, "best_f1": 100, "best_f1_thresh": 4},
            ["cat sat", ""],
            {"null_threshold": 7},
            None,
        ),
        (
            "squad2",
            [10, 4],
            {"f1": 50, "HasAns_f1": 0, "NoAns_f1": 100, "best_f1": 50, "best_f1_thresh": 0},
            ["", ""],
            {"null_threshold": 3},
            "every answer is empty",
        ),
    ],
)
def test_answers_are_written_and_scored(
    tmp_path: Path,
    task: str,
    null_odds: list[int],
    metrics: Mapping[str, float],
    texts: list[str],
    learnt: Mapping[str, float],
    degenerate: str | None,
) -> None:
    version, questions = ("2.0", QUESTIONS) if task == "squad2" else ("1.1", QUESTIONS[:1])
    names = (f"train-v{version}.json", f"dev-v{version}.json")
    data = load(tmp_path, task, dict.fromkeys(names, squad_json(PASSAGE, questions)))

    def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        logits = np.zeros((len(rows), rows.sequence_lengths().max(), 2), np.float32)
        logits[:, START, 0] = logits[:, END, 1] = 10
        logits[:, 0, 0] = [20 + odds for odds in null_odds]
        yield np.arange(len(rows)), logits

    outcome = data.finish(apply, tmp_path)
    assert outcome.metrics == data.evaluate(apply)
    assert outcome.metrics.items() >= metrics.items()
    assert list(json.loads((tmp_path / "predictions.json").read_text()).values()) == texts
    assert (outcome.learnt, outcome.degenerate) == (learnt, degenerate)
