"""The outcomes of single examples that a trial leaves give back the metrics that it reports."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.studies.weighted_metrics import statistic_of
from bert_jax.tasks import TASKS
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.glue.tasks import GLUE_TASKS
from tests.bert_jax.small_run import make_run
from tests.bert_jax.tasks.loaded import load
from tests.data_pipeline.tasks.files import json_lines, squad_json, write

WORDS = ("the", "cat", "sat", "on", "a", "mat")
COUNT = 30
SEMEVAL = ("Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)", "Other", "Made-From(e1,e2)")

Random: TypeAlias = np.random.Generator
Files: TypeAlias = Callable[[Random, str], dict[str, str]]
"""(random, task) -> text of files by name; train has every label."""


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in [columns, *rows])


def cyclic(values: Sequence[Any]) -> list[Any]:
    return [values[number % len(values)] for number in range(COUNT)]


def glue(random: Random, task: str) -> dict[str, str]:
    described = GLUE_TASKS[task]  # type: ignore[index]
    labels = cyclic(described.labels) if described.labels else random.integers(0, 6, COUNT).tolist()
    rows = [[*(f"the {random.choice(WORDS)}" for _ in described.columns), label] for label in labels]
    columns = (*described.columns, described.label_column)
    if task == "cola":
        lines = [("s", label, "", text) for text, label in rows]
        return dict.fromkeys(("train.tsv", "dev.tsv"), table(lines[0], lines[1:]))
    return {name: table(columns, rows) for split, name in described.files.items() if "test" not in split}


def texts(random: Random, task: str) -> dict[str, str]:
    labels = cyclic("xyz") if task == "classify" else np.round(random.normal(0, 1, COUNT), 1).tolist()
    rows = [(f"the {random.choice(WORDS)}", label) for label in labels]
    return dict.fromkeys(("train.tsv", "dev.tsv"), table(("text", "label"), rows))


def tags(random: Random, task: str) -> dict[str, str]:
    known = ("O", "B-X", "I-X", "B-Y") if task == "ner" else ("DET", "NOUN", "VERB")
    sentences = []
    for _ in range(COUNT):
        number = random.integers(1, 5)
        found = ["O" if task == "ner" else "DET"]
        for _ in range(number):
            can_go_on = found[-1].endswith("-X")
            found.append(str(random.choice([tag for tag in known if tag != "I-X" or can_go_on])))
        sentences.append("".join(f"{random.choice(WORDS)} {tag}\n" for tag in found))
    return dict.fromkeys(("train.txt", "dev.txt"), "\n".join(sentences))


def choices(random: Random, task: str) -> dict[str, str]:
    lines = [
        {"context": "the cat", "choices": ["sat", "was", "on"], "label": int(random.integers(3))}
        for _ in range(COUNT)
    ]
    return dict.fromkeys(("train.jsonl", "dev.jsonl"), json_lines(lines))


def relations(random: Random, task: str) -> dict[str, str]:
    spans = {"head": {"start": 0, "stop": 3}, "tail": {"start": 4, "stop": 7}}
    # The last relation counts as 0 in SemEval's F1, as dev has none of it, and none is predicted.
    train = [{"text": "the cat", **spans, "label": label} for label in (*SEMEVAL, "Part-Whole(e1,e2)")]
    dev = [{"text": "the cat", **spans, "label": label} for label in cyclic(SEMEVAL)]
    return {"train.jsonl": json_lines(train), "dev.jsonl": json_lines(dev)}


def queries(random: Random, task: str) -> dict[str, str]:
    judged = [
        {"query": f"{word} {number}", "candidates": ["the cat", "mat", "sat on"], "relevance": relevance}
        for number, word in enumerate(cyclic(WORDS))
        for relevance in [random.integers(0, 3, 3).tolist()]
    ]
    return {
        "train.jsonl": json_lines([{"query": "cat", "positive": "the"}] * 2),
        "dev.jsonl": json_lines(judged),
    }


def questions(random: Random, task: str) -> dict[str, str]:
    passage = "the cat sat on a mat"
    asked = []
    for number in range(COUNT):
        start = int(random.integers(len(passage) - 4))
        has_answer = task == "squad" or random.random() < 0.6
        answers = [{"text": passage[start : start + 4].strip(), "answer_start": start}] if has_answer else []
        asked.append(
            {"id": str(number), "question": "who", "answers": answers, "is_impossible": not has_answer}
        )
    version = "2.0" if task == "squad2" else "1.1"
    text = squad_json(passage, asked)
    return {f"{split}-v{version}.json": text for split in ("train", "dev")}


FILES: dict[str, Files] = {
    "glue": glue,
    "classify": texts,
    "tagging": tags,
    "choice": choices,
    "relation": relations,
    "ranking": queries,
    "squad": questions,
}
"""By the module of the task."""
# Their metrics are not made of single examples: a threshold is tuned for them, or they count questions.
NOT_OF_ITEMS = {"squad2": {"best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"}}


@pytest.mark.parametrize("task", TASKS)
def test_items_give_back_the_metrics(tmp_path: Path, task: str) -> None:
    random = np.random.default_rng(3)
    flags = {"scheme": "none"} if task == "tag" else {}
    module = TASKS[task].flags_module.rpartition(".")[2]
    data = load(tmp_path, task, FILES[module](random, task), **flags)

    def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        shape: tuple[int, ...] = {
            "squad": (rows.sequence_lengths().max(), 2),
            "tagging": (rows.sequence_lengths().max(), len(data.labels)),
            "ranking": (4,),
        }.get(module, (len(data.labels) or rows.sequences_per_row,))
        said = np.random.default_rng(len(rows)).normal(0, 1, (len(rows), *shape))
        if task == "relation":
            said[:, data.labels.index("Part-Whole(e1,e2)")] = -10
        yield np.arange(len(rows)), said.astype(np.float32)

    outcome = data.finish(apply, tmp_path)
    totals = {name for name in outcome.metrics if name.endswith("total")}
    assert outcome.items.keys() == outcome.metrics.keys() - totals - NOT_OF_ITEMS.get(task, set())
    assert {metric.name for metric in data.metrics} <= outcome.items.keys()
    for name, items in outcome.items.items():
        assert len(items) == (outcome.metrics.get("total") or COUNT)
        found = statistic_of(name, items)(items[None], np.ones((1, len(items))))
        assert found == pytest.approx(outcome.metrics[name], rel=0, abs=1e-9), name
        assert outcome.metrics[name] != 0, name


def test_a_trial_leaves_them_beside_its_result(tmp_path: Path) -> None:
    make_run(tmp_path / "model", num_layers=1)
    for split in ("train", "dev"):
        write(tmp_path / "data" / f"{split}.tsv", "text\tlabel\nthe cat\tx\na dog\ty\nthe mat\tx\n")
    paths = [f"--{name}={tmp_path / name}" for name in ("model", "data", "output")]
    assert main(["finetune", "classify", *paths, "--max-seq-length=16", "--epochs=1"]) == 0
    best = tmp_path / "output" / "best"
    metrics = json.loads((best / "result.json").read_text())["metrics"]
    with np.load(best / "items.npz") as items:
        assert set(items) == {"accuracy", "macro_f1", "matthews"}
        assert items["accuracy"].mean() == metrics["accuracy"]
        assert items["macro_f1"].shape == (3, 2)
