"""Texts with classes or numbers: a user's table to rows, and labels that are wrong."""

import numpy as np
import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.classify import TextExample, read_table, text_rows
from data_pipeline.tasks.finetuning.labels import find_labels, label_ids, label_values, optional_label_targets
from data_pipeline.tasks.finetuning.records import Place
from tests.data_pipeline.tasks.files import write
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer, pieces


def labelled(*labels: str | None) -> list[TextExample]:
    return [TextExample(Place("x.csv", line), "a", None, label) for line, label in enumerate(labels, start=2)]


def test_a_table_becomes_rows(tmp_path):
    file = write(tmp_path / "x.csv", 'question,answer,kind\n"a, b",c,good\nd,e f,bad\n')
    examples = read_table(file, ["question", "answer"], "kind")
    labels = find_labels(examples)
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    rows = text_rows(examples, tokenizer, 8, {"labels": label_ids(examples, labels)})
    assert labels == ("bad", "good")
    assert [pieces(tokenizer, ids) for ids in rows.tokens["input_ids"]] == [
        "[CLS] a , b [SEP] c [SEP]",
        "[CLS] d [SEP] e f [SEP]",
    ]
    assert rows.targets["labels"].tolist() == [1, 0]
    assert rows.example.tolist() == [0, 1]
    assert len(rows) == 2


def test_the_second_text_of_a_pair_may_be_empty(tmp_path):
    file = write(tmp_path / "x.csv", "question,answer\na,\nb, \n,c\n")
    with pytest.raises(UserError, match=r"x\.csv, line 4: question is empty; it must be text"):
        read_table(file, ["question", "answer"])
    examples = read_table(write(tmp_path / "y.csv", "question,answer\na,\nb, \n"), ["question", "answer"])
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    ids = text_rows(examples, tokenizer, 8, {}).tokens["input_ids"]
    assert [pieces(tokenizer, row) for row in ids] == ["[CLS] a [SEP] [SEP]", "[CLS] b [SEP] [SEP]"]


def test_texts_to_predict_need_no_label(tmp_path):
    examples = read_table(write(tmp_path / "x.tsv", "text\tother\na\tb\n"), ["text"])
    assert examples == [TextExample(Place(str(tmp_path / "x.tsv"), 2), "a", None, None)]
    with pytest.raises(UserError, match=r"x\.tsv, line 2 has no label; only texts to predict"):
        find_labels(examples)


def test_labels_of_json_may_be_numbers_and_truth_values(tmp_path):
    file = write(tmp_path / "x.jsonl", '{"t": "a", "y": 10}\n{"t": "b", "y": 9.5}\n{"t": "c", "y": true}\n')
    assert [example.label for example in read_table(file, ["t"], "y")] == ["10", "9.5", "true"]


def test_labels_are_sorted_by_number_where_all_are_numbers():
    assert find_labels(labelled("10", "9", "-1", "9")) == ("-1", "9", "10")
    assert find_labels(labelled("10", "9", "b")) == ("10", "9", "b")
    assert find_labels(labelled("nan", "9", "10")) == ("10", "9", "nan")


def test_values_are_numbers():
    values = label_values(labelled("1.5", " -2", "1e1"))
    assert values.dtype == np.float32
    assert values.tolist() == [1.5, -2, 10]


def test_a_number_is_no_label_if_it_is_always_minus_one_and_new():
    """TFDS gives every example of a test set without labels the label -1; elsewhere -1 is a value."""

    def values(test: list[TextExample], training: list[TextExample]) -> list[float] | None:
        targets = optional_label_targets(test, (), training)
        return targets["values"].tolist() if targets else None

    assert values(labelled("-1", "-1.0"), labelled("0", "5")) is None
    assert values(labelled("-1", "-1.0"), labelled("-1.0", "5")) == [-1, -1]
    assert values(labelled("-1", "2"), labelled("0", "5")) == [-1, 2]


def test_minus_one_is_no_label_unless_training_has_it():
    for training, targets in ((labelled("0", "1"), {}), (labelled("0", "1", "-1"), {"labels"})):
        found = optional_label_targets(labelled("-1", "-1"), ("-1", "0", "1"), training)
        assert set(found) == set(targets)


@pytest.mark.parametrize("word", ["high", "nan", "inf", "1,5", "", "1e39", "-1e39", "1_5"])
def test_a_value_that_is_no_number_is_named_with_its_line(word):
    with pytest.raises(UserError, match=rf"x\.csv, line 3 has the label '{word}'; regression needs a number"):
        label_values(labelled("1", word))


def test_an_unknown_label_is_named_with_the_valid_ones():
    with pytest.raises(UserError, match=r"x\.csv, line 3 has the label 'c'; it must be one of a, b"):
        label_ids(labelled("a", "c"), ("a", "b"))
    with pytest.raises(UserError, match=r"one of l0, l1, .*, l19 and 30 more$"):
        label_ids(labelled("c"), [f"l{number}" for number in range(50)])


def test_one_label_is_refused():
    with pytest.raises(UserError, match=r"x\.csv has no label but a; classification needs two or more"):
        find_labels(labelled("a", "a"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"t": " ", "y": 1}', r"line 1: t is empty"),
        ('{"t": 5, "y": 1}', r"line 1: t is 5; it must be text"),
        ('{"t": "a\\ud83d", "y": 1}', r"line 1: t has half a character, such as"),
        ('{"t": "a", "y": ""}', r"line 1 has no y; it must be a word or a number"),
        ('{"t": "a", "y": null}', r"line 1 has no y"),
        ('{"t": "a", "y": "a\\ud83d"}', r"line 1: y has half a character, such as"),
        ('{"t": "a", "y": [1]}', r"line 1 has no y"),
    ],
)
def test_empty_texts_and_labels_are_named_with_their_line(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_table(write(tmp_path / "x.jsonl", content), ["t"], "y")
