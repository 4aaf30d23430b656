"""A fine-tuned model in Python says what `bert-jax predict` says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_jax
from bert_jax.cli.main import main
from bert_jax.tasks.finetuning import task as task_module
from data_pipeline.errors import UserError
from tests.bert_jax.small_finetuned import make_trial
from tests.data_pipeline.tasks.files import json_lines

TEXTS = ["the cat sat", "Paris is a city", "the dog " * 20, "on"]
PASSAGE = "the cat sat on the mat . Paris is a city ."

# A task whose examples are objects, its kind of head, its labels, its settings, and examples.
OBJECTS: list[tuple[str, str, tuple[str, ...], dict[str, Any], list[dict[str, Any]]]] = [
    (
        "squad",
        "spans",
        (),
        {"max_seq_length": 16, "doc_stride": 4, "max_query_length": 4},
        [{"question": "the cat", "context": PASSAGE}, {"question": "a city", "context": "Paris"}],
    ),
    (
        "swag",
        "choice",
        (),
        {"max_seq_length": 16},
        [
            {"context": "the cat", "question": "sat", "choices": ["on", "Paris"]},
            {"context": "a city", "choices": ["the dog", "on", "the cat"]},
        ],
    ),
    (
        "relation",
        "relation",
        ("in", "of"),
        {"max_seq_length": 24},
        [{"text": "the cat sat on", "head": {"start": 4, "stop": 7}, "tail": {"start": 12, "stop": 14}}],
    ),
    (
        "rank",
        "in_batch_ranking",
        (),
        {"max_seq_length": 16},
        [
            {"query": "the cat", "candidates": ["the dog", "Paris", "on"]},
            {"query": "a city", "candidates": ["Paris"]},
        ],
    ),
]


def predict_file(directory: Path, source: Path, text: str) -> str:
    """What `bert-jax predict` writes for a file."""
    source.write_text(text)
    output = source.with_stem("predicted")
    assert main(["predict", f"--model={directory}", f"--input={source}", f"--output={output}"]) == 0
    return output.read_text()


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    make_trial(tmp_path / "model", "classification", "classify", ("no", "yes"))
    source = tmp_path / "new.tsv"
    source.write_text("text\nthe cat\n")
    predictor = bert_jax.load_finetuned(str(tmp_path / "model"))
    with pytest.raises(UserError, match="exists"):
        predictor.predict_file(str(source), str(source))
    assert source.read_text() == "text\nthe cat\n"
    assert predictor.predict_file(str(source), str(tmp_path / "out.tsv")) == 1


def assert_like(found: Any, told: Any) -> None:
    """Asserts equality up to the rounding of numbers, since other batches are summed differently."""
    assert type(found) is type(told)
    if isinstance(told, dict):
        assert list(found) == list(told)
        found, told = list(found.values()), list(told.values())
    if isinstance(told, list):
        assert len(found) == len(told)
        for one, other in zip(found, told, strict=True):
            assert_like(one, other)
    else:
        assert found == (pytest.approx(told, abs=2e-6) if isinstance(told, float) else told)


def test_labels_are_those_of_the_command(tmp_path: Path) -> None:
    make_trial(tmp_path, "classification", "classify", ("yes", "no"), settings={"max_seq_length": 16})
    model = bert_jax.load_finetuned(tmp_path)
    assert model.labels == ("yes", "no")
    with pytest.warns(UserWarning, match="1 text was cut to 16 tokens"):
        found = model.predict(TEXTS)
    lines = predict_file(tmp_path, tmp_path / "new.jsonl", json_lines({"text": text} for text in TEXTS))
    assert_like(found, [json.loads(line)["prediction"] for line in lines.splitlines()])
    assert model.predict([]) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("task", "kind", "labels", "settings", "examples"), OBJECTS)
def test_objects_are_answered_as_lines_of_json(
    tmp_path: Path,
    task: str,
    kind: str,
    labels: tuple[str, ...],
    settings: dict[str, Any],
    examples: list[dict[str, Any]],
) -> None:
    make_trial(tmp_path, kind, task, labels, settings=settings)
    model = bert_jax.load_finetuned(tmp_path)
    lines = predict_file(tmp_path, tmp_path / "new.jsonl", json_lines(examples))
    by_command = [json.loads(line)["prediction"] for line in lines.splitlines()]
    assert_like(model.predict(examples), by_command)
    lacking = dict(examples[0])
    missing = next(iter(lacking))
    del lacking[missing]
    with pytest.raises(UserError, match=f"the examples, index 1 has no column {missing}"):
        model.predict([examples[0], lacking])
    with pytest.raises(UserError, match="the examples, index 0: 'the cat' is no dict of"):
        model.predict(["the cat"])


@pytest.mark.parametrize("context", ["sentence", "document"])
def test_tags_of_words(tmp_path: Path, context: str) -> None:
    tags = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    settings = {"max_seq_length": 16, "scheme": "iobes", "context": context}
    make_trial(tmp_path, "tagging", "ner", tags, settings=settings)
    sentences = [["the", "cat", "sat"], ["Paris", "is", "a", "city"], ["on"]]
    start = "-DOCSTART-\n\n" if context == "document" else ""
    text = predict_file(
        tmp_path, tmp_path / "new.txt", start + "\n\n".join("\n".join(words) for words in sentences) + "\n"
    )
    groups = text.removeprefix("-DOCSTART- O\n\n").split("\n\n")
    by_command = [[line.split()[-1] for line in group.splitlines()] for group in groups]
    model = bert_jax.load_finetuned(tmp_path)
    assert model.predict(sentences) == by_command
    with pytest.raises(UserError, match="the examples, index 0: 'the cat' is no list of words"):
        model.predict(["the cat"])
    with pytest.raises(UserError, match=r"the examples, index 1: \[\] is no list of words"):
        model.predict([["the"], []])


@pytest.mark.parametrize(
    ("task", "kind", "labels", "example"),
    [
        ("tag", "tagging", ("O", "B-X"), ["the", "cat"]),
        ("squad", "spans", (), {"question": "the", "context": PASSAGE}),
    ],
)
def test_the_tokenizer_is_made_ready_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    kind: str,
    labels: tuple[str, ...],
    example: Any,
) -> None:
    settings = {"max_seq_length": 16} | ({"max_query_length": 4} if task == "squad" else {})
    make_trial(tmp_path, kind, task, labels, settings=settings)
    made: list[object] = []
    make = task_module.make_task_tokenizer
    monkeypatch.setattr(task_module, "make_task_tokenizer", lambda given: made.append(given) or make(given))
    model = bert_jax.load_finetuned(tmp_path)
    assert model.predict([example]) == model.predict([example])
    assert len(made) == 1


def test_pairs_get_numbers(tmp_path: Path) -> None:
    make_trial(tmp_path, "regression", "stsb", settings={"max_seq_length": 16})
    model = bert_jax.load_finetuned(tmp_path)
    one, other = model.predict([("the cat", "the dog"), ("the dog", "the cat")])
    assert one.keys() == {"value"}
    assert one != other
    with pytest.raises(UserError, match=r"index 0: 'the cat' is no pair .*, as the model was trained on"):
        model.predict(["the cat"])


@pytest.mark.parametrize(
    ("task", "kind", "settings", "good", "bad", "message"),
    [
        ("classify", "classification", {}, "cat", "", "index 1: text is empty; it must be text"),
        ("classify", "classification", {"text_column": "title"}, "cat", " ", "index 1: title is empty"),
        (
            "classify",
            "classification",
            {"pair_column": "other"},
            ("cat", ""),
            ("", "dog"),
            "index 1: text is empty",
        ),
        ("cola", "classification", {}, "cat", "\n", "index 1 has no text"),
        # A pair of GLUE's needs one text, as in its files.
        ("mrpc", "classification", {}, ("cat", ""), ("", ""), "index 1 has no text"),
        ("stsb", "regression", {}, ("", "cat"), (" ", ""), "index 1 has no text"),
    ],
)
def test_an_empty_text_is_refused_as_in_a_file(
    tmp_path: Path, task: str, kind: str, settings: dict[str, Any], good: Any, bad: Any, message: str
) -> None:
    labels = ("0", "1") if kind == "classification" else ()
    make_trial(tmp_path, kind, task, labels, settings={"max_seq_length": 16, **settings})
    model = bert_jax.load_finetuned(tmp_path)
    assert len(model.predict([good])) == 1
    with pytest.raises(UserError, match=f"the examples, {message}"):
        model.predict([good, bad])


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    make_trial(tmp_path / "texts", "classification", "classify", ("a", "b"), settings={"max_seq_length": 16})
    model = bert_jax.load_finetuned(tmp_path / "texts")
    for wrong in ("the cat", {"text": "the cat"}, np.array([["the cat"]])):
        with pytest.raises(UserError, match=f"takes a list of examples, not {type(wrong).__name__}"):
            model.predict(wrong)
    assert model.predict(iter(["the cat"])) == model.predict(np.array(["the cat"]))
    with pytest.raises(UserError, match="index 0: text has half a character"):
        model.predict(["the \ud83d cat"])
    with pytest.raises(UserError, match=r"index 1: \('the cat', 'the dog'\) is no text"):
        model.predict(["the cat", ("the cat", "the dog")])
    with_pairs = {"max_seq_length": 16, "pair_column": "other"}
    make_trial(tmp_path / "pairs", "classification", "classify", ("a", "b"), settings=with_pairs)
    pairs = bert_jax.load_finetuned(tmp_path / "pairs")
    assert len(pairs.predict([("the cat", "the dog")])) == 1
    with pytest.raises(UserError, match="index 0: 'the cat' is no pair"):
        pairs.predict(["the cat"])


def test_the_card_of_an_export_has_what_was_tuned(tmp_path: Path) -> None:
    make_trial(tmp_path / "trial", "spans", "squad2", learnt={"null_threshold": 1.75})
    assert main(["convert", "--model", str(tmp_path / "trial"), "--output", str(tmp_path / "exported")]) == 0
    assert "| null threshold | 1.75 |" in (tmp_path / "exported" / "README.md").read_text()
