"""TensorFlow datasets where a file could be: the same examples as of the file."""

import dataclasses
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from data_pipeline.errors import UserError
from data_pipeline.tasks.classify import read_table
from data_pipeline.tasks.finetuning.records import read_records
from data_pipeline.tasks.finetuning.splits import SplitName, find_split, require_split
from data_pipeline.tasks.squad.questions import read_squad
from data_pipeline.tasks.tagging.columns import Columns, has_tags, read_columns, write_columns
from data_pipeline.tfds import TfdsSplit
from tests.data_pipeline.tasks.files import squad_json, write
from tests.data_pipeline.tiny_tfds import conll_features, squad_features, store, table_features

CONTEXT = "Élan was in Paris."
QUESTIONS = [
    {
        "id": "q1",
        "question": "Where?",
        "answers": [{"text": "Paris", "answer_start": 12}],
        "is_impossible": False,
    },
    {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
]


@pytest.fixture(scope="module", autouse=True)
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("tfds")
    rows = [{"text": "the cat", "label": "b"}, {"text": "ein Hund ü", "label": "a"}]
    unlabelled = [{"text": "the mat", "label": -1}]
    store(
        directory,
        "table",
        table_features(["a", "b"]),
        {"train": rows, "validation": rows, "test": unlabelled},
    )
    flat = [
        {
            **question,
            "context": CONTEXT,
            "answers": {key: [a[key] for a in question["answers"]] for key in ("text", "answer_start")},
        }
        for question in QUESTIONS
    ]
    store(directory, "squad_like", squad_features(), {"dev": flat})
    sentences = [
        {"tokens": ["Ann", "left"], "pos": ["B", "A"], "chunks": ["A", "A"], "ner": ["B-PER", "O"]},
        {"tokens": ["Rome"], "pos": ["B"], "chunks": ["B"], "ner": ["B-LOC"]},
    ]
    store(directory, "conll_like", conll_features(["O", "B-PER", "B-LOC"]), {"train": sentences})
    tfds.core.add_data_dir(str(directory))


def split(name: str, part: SplitName = "train") -> TfdsSplit:
    found = require_split(f"tfds:{name}", part)
    assert isinstance(found, TfdsSplit)
    return found


def test_classes_are_words_and_an_unknown_one_is_none() -> None:
    rows = [{"text": "the cat", "label": "b"}, {"text": "ein Hund ü", "label": "a"}]
    assert list(split("table", "dev").records()) == rows
    assert list(split("table", "test").records()) == [{"text": "the mat", "label": None}]


def test_a_table_is_read_with_places() -> None:
    examples = read_table(split("table"), ["text"], "label")
    assert [(example.text, example.label) for example in examples] == [("the cat", "b"), ("ein Hund ü", "a")]
    assert str(examples[1].place) == "tfds:table train, example 2"
    with pytest.raises(UserError, match="tfds:table train has no column title; it has"):
        list(read_records(split("table"), ["title"]))
    with pytest.raises(UserError, match="tfds:table test, example 1 has no label"):
        read_table(split("table", "test"), ["text"], "label")


def test_squad_is_the_same_as_its_file(tmp_path: Path) -> None:
    file = write(tmp_path / "dev.json", squad_json(CONTEXT, QUESTIONS))
    assert read_squad(split("squad_like", "dev")) == read_squad(file)
    with pytest.raises(UserError, match="tfds:table train has no column id"):
        read_squad(split("table"))


@pytest.mark.parametrize("columns", [Columns(), Columns("tokens", "ner")])
def test_conll_has_the_columns_of_its_file(tmp_path: Path, columns: Columns) -> None:
    named = "" if columns == Columns() else "tokens\tpos\tchunks\tner\n"
    file, output = tmp_path / "train.txt", tmp_path / "predicted.txt"
    file.write_text(f"{named}Ann\tB\tA\tB-PER\nleft\tA\tA\tO\n\nRome\tB\tB\tB-LOC\n\n")
    source = split("conll_like")
    assert read_columns(source, columns) == read_columns(file, columns)
    assert has_tags(source, columns, source)
    assert has_tags(source, dataclasses.replace(columns, word=0), source)
    sentences = read_columns(source, columns)
    write_columns(source, output, columns, zip(sentences, [["O", "O"], ["B-PER"]], strict=True))
    header = named.replace("\n", "\tpredicted\n")
    assert (
        output.read_text() == f"{header}Ann\tB\tA\tB-PER\tO\nleft\tA\tA\tO\tO\n\nRome\tB\tB\tB-LOC\tB-PER\n\n"
    )


def test_a_part_that_is_not_there_is_named() -> None:
    assert find_split("tfds:conll_like", "test") is None
    with pytest.raises(
        UserError, match="tfds:conll_like has no split dev or val or valid or validation; it has"
    ):
        split("conll_like", "dev")
    with pytest.raises(UserError, match=r"tfds:no_such_set is not available .*; name a directory"):
        split("no_such_set")
