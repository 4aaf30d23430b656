"""A test set is scored if all its examples have labels, and only predicted if none has."""

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.formats.open_model import open_model
from bert_jax.tasks import TASKS
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.rows import Rows
from tests.bert_jax.small_run import make_run
from tests.bert_jax.tasks.loaded import load
from tests.data_pipeline.tasks.files import write_all

TEXTS = "text\tlabel\nthe cat\tx\na dog\ty\n"
NUMBERS = "text\tlabel\nthe cat\t-1\na dog\t2\n"
TAGS = "the O\ncat B-X\n\ndog O\n"
CHOICE = '{"context": "the cat", "choices": ["sat", "was"], "label": %s}\n'
ENTITIES = '{"text": "the cat", "head": {"start": 0, "stop": 3}, "tail": {"start": 4, "stop": 7}%s}\n'
RELATIONS = ENTITIES % ', "label": "x"' + ENTITIES % ', "label": "y"'
TRAIN_QUERIES = '{"query": "cat", "positive": "the cat"}\n'
QUERY = '{"query": "cat", "candidates": ["the cat", "mat"]%s}\n'
JUDGED = QUERY % ', "relevance": [0, 1]'

# Training set, development set, and the suffix of both.
DATA: dict[str, tuple[str, str, str]] = {
    "classify": (TEXTS, TEXTS + "the mat\tx\n", ".tsv"),
    "regress": (NUMBERS, NUMBERS + "the mat\t5\n", ".tsv"),
    "ner": (TAGS, TAGS, ".txt"),
    "swag": (CHOICE % 0, CHOICE % 1 + CHOICE % 0 + CHOICE % 1, ".jsonl"),
    "relation": (RELATIONS, RELATIONS + ENTITIES % ', "label": "x"', ".jsonl"),
    "rank": (TRAIN_QUERIES, JUDGED * 2 + JUDGED.replace('"cat"', '"dog"'), ".jsonl"),
}

# Outputs of a model for those development sets, with one example wrong, and the resulting scores.
SAID: dict[str, tuple[np.ndarray, dict[str, float]]] = {
    "classify": (np.eye(2)[[0, 1, 1]], {"accuracy": 2 / 3, "macro_f1": 2 / 3, "matthews": 1 / 2}),
    "regress": (np.array([[0], [5], [1]]), {"pearson": 3 / 252**0.5, "spearman": 1 / 2}),
    "ner": (
        np.eye(3)[[[0, 0, 0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0, 0, 0]]],
        {"precision": 50, "recall": 100, "f1": 200 / 3},
    ),
    "swag": (np.eye(2)[[1, 0, 0]], {"accuracy": 2 / 3}),
    "relation": (np.eye(2)[[0, 1, 1]], {"macro_f1": 2 / 3, "accuracy": 2 / 3}),
    # Vectors of "cat", "the cat", "mat" and "dog".
    "rank": (
        np.eye(2)[[0, 1, 0, 1]],
        {"mrr": 5 / 6, "recall@1": 2 / 3, "recall@10": 1, "ndcg@10": (2 + 1 / np.log2(3)) / 3},
    ),
}

UNLABELLED: list[tuple[str, str]] = [
    ("classify", "text\nthe mat\n"),
    ("classify", "text\tlabel\nthe mat\t\nthe cat\t\n"),
    ("classify", "text\tlabel\nthe mat\t-1\n"),
    ("regress", "text\tlabel\nthe mat\t \n"),
    ("ner", "the\nmat\n"),
    ("ner", "the O\nmat O\n"),
    ("ner", "the\t\nmat\t\n"),
    ("swag", CHOICE % -1),
    ("swag", CHOICE % '""'),
    ("swag", CHOICE.replace(', "label": %s', "")),
    ("relation", ENTITIES % ', "label": ""'),
    ("relation", ENTITIES % ""),
    ("rank", QUERY % ""),
    ("rank", QUERY % ', "relevance": null'),
]

REFUSED: list[tuple[str, str, str]] = [
    ("classify", "text\tlabel\nthe mat\tz\n", "line 2 has the label 'z'; it must be one of x, y"),
    ("classify", "text\tlabel\nthe mat\tx\nthe cat\t\n", "line 3 has no label, though other examples have"),
    ("regress", "text\tlabel\nthe mat\tx\n", "line 2 has the label 'x'; regression needs a number"),
    ("ner", "the O\nmat B-Y\n", "test.txt:2: no word of training or dev has the type Y; their types are X"),
    ("swag", CHOICE % 7, "line 1 has the label 7; it must be from 0 to 1"),
    ("swag", CHOICE % 0 + CHOICE % -1, "line 2 has no label, though other examples have one"),
    ("relation", ENTITIES % ', "label": "z"', "line 1 has the label 'z'; it must be one of x, y"),
    ("rank", JUDGED + QUERY % "", "line 2 has no relevance, though other examples have one"),
]


def files_of(task: str, test: str | None = None) -> dict[str, str]:
    """Contents by name; without a test set if it is None."""
    train, dev, suffix = DATA[task]
    return {f"train{suffix}": train, f"dev{suffix}": dev} | ({} if test is None else {f"test{suffix}": test})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run") / "model"
    make_run(directory, num_layers=1)
    return directory


def metrics(model: Path, directory: Path, task: str, *more: str) -> Mapping[str, float]:
    """Fine-tunes for one epoch and returns the best trial's metrics."""
    flags = ["--max-seq-length=16", "--epochs=1", *more]
    paths = [f"--model={model}", f"--data={directory}", f"--output={directory / 'out'}"]
    assert main(["finetune", task, *paths, *flags]) == 0
    return json.loads((directory / "out" / "results.json").read_text())["best"]["metrics"]


def test_figures_of_a_test_set_are_shown(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_all(tmp_path, files_of("classify", TEXTS + "the mat\tx\n"))
    found = metrics(model, tmp_path, "classify")
    assert {name for name in found if name.startswith("test_")} == {
        "test_accuracy",
        "test_macro_f1",
        "test_matthews",
    }
    assert f"  test_accuracy {found['test_accuracy']:.4g}  " in capsys.readouterr().out.partition("best: ")[2]


def test_a_test_set_that_comes_or_changes_after_training_is_predicted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_all(tmp_path, files_of("classify"))
    assert not any(name.startswith("test_") for name in metrics(model, tmp_path, "classify"))
    curve = (tmp_path / "out" / "best" / "metrics.jsonl").read_bytes()
    for test, count in (("text\nthe mat\n", 1), (TEXTS, 2), (TEXTS.replace("dog\ty", "dog\tx"), 2)):
        (tmp_path / "test.tsv").write_text(test)
        for said in ("the test set is new or was changed: lr3e-05-", ""):
            found = metrics(model, tmp_path, "classify")
            out = capsys.readouterr().out
            assert said in out
            assert ("predicts it" in out) is bool(said)
        lines = (tmp_path / "out" / "best" / "predictions-test.jsonl").read_text().splitlines()
        assert len(lines) == count
        assert ("test_accuracy" in found) is ("label" in test)
    assert found["test_accuracy"] != found["accuracy"]
    assert (tmp_path / "out" / "best" / "metrics.jsonl").read_bytes() == curve


def test_the_best_probe_of_an_earlier_start_predicts_a_new_test_set(model: Path, tmp_path: Path) -> None:
    """Its layer may be one whose features the later start does not compute."""
    write_all(tmp_path, files_of("classify"))
    layers = range(open_model(model).config.num_layers + 1)
    flags = ["--frozen-layers", str(layers[-1]), "--features.combine=each", "--features.layers"]
    metrics(model, tmp_path, "classify", *flags, str(layers[0]), str(layers[-1]))
    best = json.loads((tmp_path / "out" / "results.json").read_text())["best"]["layer"]
    (other,) = {layers[0], layers[-1]} - {best}
    (tmp_path / "test.tsv").write_text(TEXTS)
    assert "test_accuracy" in metrics(model, tmp_path, "classify", *flags, str(other))


@pytest.mark.parametrize("task", DATA)
def test_a_test_set_is_known_by_what_it_is_scored_by(tmp_path: Path, task: str) -> None:
    dev = DATA[task][1]
    with_one = load(tmp_path / "one", task, files_of(task, dev)).test_fingerprint
    assert load(tmp_path / "same", task, files_of(task, dev)).test_fingerprint == with_one
    changed = {"classify": ("dog\ty", "dog\tx"), "regress": ("dog\t2", "dog\t3"), "ner": ("dog O", "dog B-X")}
    changed |= {
        "swag": ('"label": 0', '"label": 1'),
        "relation": ('"x"', '"y"'),
        "rank": ("[0, 1]", "[1, 1]"),
    }
    other = files_of(task, dev.replace(*changed[task]))
    assert load(tmp_path / "other", task, other).test_fingerprint != with_one
    assert load(tmp_path / "none", task, files_of(task)).test_fingerprint == ""


@pytest.mark.parametrize("task", DATA)
def test_a_test_set_with_labels_is_scored_as_the_development_set_is(tmp_path: Path, task: str) -> None:
    data = load(tmp_path, task, files_of(task, DATA[task][1]))
    said, metrics = SAID[task]

    def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield np.arange(len(rows)), said.astype(np.float32)

    assert data.evaluate(apply) == pytest.approx(metrics)
    of_test = {f"test_{name}": value for name, value in metrics.items()}
    assert data.finish(apply, tmp_path).metrics == pytest.approx(metrics | of_test)


@pytest.mark.parametrize("task", DATA)
def test_metrics_that_may_choose_the_best_trial_are_shown(tmp_path: Path, task: str) -> None:
    data = load(tmp_path, task, files_of(task, DATA[task][1]))
    head = TASKS[task].settings().head(task, FineTuningConfig())
    assert {metric.name for metric in data.metrics} <= {metric.name for metric in head.metrics}


def test_glues_test_sets_are_predicted_for_its_server(tmp_path: Path) -> None:
    lines = "sentence1\tsentence2\tgold_label\n" + "the cat\ta dog\tneutral\n" * 3
    splits = ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
    files = {f"{split}.tsv": lines for split in splits}
    files["diagnostic.tsv"] = "sentence1\tsentence2\nthe cat\ta dog\n"
    data = load(tmp_path, "mnli", files)

    def apply(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield np.arange(len(rows)), np.eye(3, dtype=np.float32)[: len(rows)]

    assert data.finish(apply, tmp_path).metrics == {"accuracy": 1 / 3, "dev_mismatched_accuracy": 1 / 3}
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        texts = {name: archive.read(name).decode().split() for name in archive.namelist()}
    assert texts.keys() == {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
    assert texts["AX.tsv"] == ["index", "prediction", "0", "contradiction"]
    assert texts["MNLI-mm.tsv"][3::2] == ["contradiction", "entailment", "neutral"]


@pytest.mark.parametrize(("task", "test"), UNLABELLED)
def test_a_test_set_without_labels_is_read(tmp_path: Path, task: str, test: str) -> None:
    data = load(tmp_path, task, files_of(task, test))
    targets = data.evaluated["test"].targets.keys()
    assert targets <= {"entity_positions"}


@pytest.mark.parametrize(("task", "test", "message"), REFUSED)
def test_a_label_of_a_test_set_that_cannot_be_scored_is_named(
    tmp_path: Path, task: str, test: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load(tmp_path, task, files_of(task, test))


def test_words_without_tags_are_predicted_alone(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_all(tmp_path, files_of("ner", "the\n\nmat\n"))
    assert metrics(model, tmp_path, "ner").keys() == {"precision", "recall", "f1"}
    (line,) = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith("metrics of each type")
    )
    assert json.loads(Path(line.partition(": ")[2]).read_text()).keys() == {"X"}
    predicted = (tmp_path / "out" / "best" / "predictions-test.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in predicted] == ["the", "", "mat"]


def test_tags_that_mark_no_entities_are_scored_word_by_word(model: Path, tmp_path: Path) -> None:
    tags = "the DT\ncat NN\n\ndog NN\n"
    write_all(tmp_path, dict.fromkeys(("train.txt", "dev.txt", "test.txt"), tags))
    assert metrics(model, tmp_path, "tag", "--scheme=none").keys() == {
        "accuracy",
        "macro_f1",
        "test_accuracy",
        "test_macro_f1",
    }
    best = tmp_path / "out" / "best"
    report = json.loads((best / "report.json").read_text())
    assert {tag: scores["support"] for tag, scores in report.items()} == {"DT": 1, "NN": 2}
    (tmp_path / "new.txt").write_text("the\ncat\n")
    paths = [f"--input={tmp_path / 'new.txt'}", f"--output={tmp_path / 'tagged.txt'}"]
    assert main(["predict", f"--model={best}", *paths]) == 0
    predicted = [line.split() for line in (tmp_path / "tagged.txt").read_text().splitlines()]
    assert [word for word, _ in predicted] == ["the", "cat"]
    assert {tag for _, tag in predicted} <= {"DT", "NN"}


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("the DT\ncat VB\n", "test.txt:2: no word of training or dev has the tag VB; their tags are DT, NN"),
        ("x\n", None),
    ],
)
def test_other_tags_of_words_are_named(tmp_path: Path, test: str, message: str | None) -> None:
    files = {"train.txt": "the DT\ncat NN\n", "dev.txt": "the DT\n", "test.txt": test}
    if message is None:
        data = load(tmp_path, "tag", files, scheme="none")
        assert "tag_ids" not in data.evaluated["test"].tokens
    else:
        with pytest.raises(UserError, match=message):
            load(tmp_path, "tag", files, scheme="none")


@pytest.mark.parametrize(
    ("test", "is_scored"), [("word tag\nthe O\ncat B-X\n", True), ("word\nthe\n", False)]
)
def test_columns_of_tags_are_found_by_name(tmp_path: Path, test: str, is_scored: bool) -> None:
    tagged = f"word tag\n{TAGS}"
    files = {"train.txt": tagged, "dev.txt": tagged, "test.txt": test}
    data = load(tmp_path, "ner", files, word_column="word", tag_column="tag")
    assert ("tag_ids" in data.evaluated["test"].tokens) is is_scored
