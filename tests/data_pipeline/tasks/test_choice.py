"""Multiple choice: SWAG's, CODAH's and a user's files, and rows with a sequence a choice."""

import json
import operator

import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.choice import ChoiceExample, choice_rows, read_choices
from data_pipeline.tasks.finetuning.folds import split_fold
from data_pipeline.tasks.finetuning.records import Place
from tests.data_pipeline.tasks.files import json_lines, write
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer, pieces

SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"


def test_swags_endings_follow_the_start_of_the_sentence(tmp_path):
    file = write(tmp_path / "train.csv", f'{SWAG},label\n0,v,1,s,He sat.,"Then, he",gold,ran.,"a, b",c,d,2\n')
    assert read_choices(file) == [
        ChoiceExample(
            Place(str(file), 2),
            "He sat.",
            ("Then, he ran.", "Then, he a, b", "Then, he c", "Then, he d"),
            2,
        )
    ]
    test = write(tmp_path / "test.csv", f"{SWAG}\n0,v,1,s,He sat.,,gold,ran.,b,c,d\n")
    assert read_choices(test)[0].choices == ("ran.", "b", "c", "d")
    assert read_choices(test)[0].label is None


def test_each_part_of_a_directory_is_read_by_its_own_form(tmp_path):
    (tmp_path / "train").mkdir()
    rows = [f"{SWAG},label\n0,v,1,s,He sat.,He,gold,ran.,b,c,{end},2\n" for end in ("d", "e")]
    parts = [write(tmp_path / "train" / f"{name}.csv", row) for name, row in zip("ab", rows, strict=True)]
    assert read_choices(tmp_path / "train") == [one for part in parts for one in read_choices(part)]


def test_codah_has_no_header_and_no_quoting(tmp_path):
    file = write(tmp_path / "x.tsv", 'o\tHe said\t"Rat!!\tb\tc\td\t3\n\tShe\te\tf\tg\th\t0\n')
    first, second = read_choices(file)
    assert (first.context, first.choices, first.label) == ("He said", ('"Rat!!', "b", "c", "d"), 3)
    assert (second.context, second.label, second.place.line) == ("She", 0, 2)


@pytest.mark.parametrize("question", [None, ""])
def test_a_blank_question_is_none(tmp_path, question):
    line = {"context": "a", "question": question, "choices": ["b", "c"], "label": 1}
    [example] = read_choices(write(tmp_path / "x.jsonl", json.dumps(line)))
    assert example.choices == ("b", "c")


def test_choices_of_json_may_differ_in_number_and_follow_their_question(tmp_path):
    lines = [
        {"context": "a", "question": "q", "choices": ["b", "c", "d"], "label": 2},
        {"context": "e", "choices": ["f", "g"], "label": "0"},
    ]
    file = write(tmp_path / "x.jsonl", json_lines(lines))
    examples = read_choices(file)
    assert [example.choices for example in examples] == [("q b", "q c", "q d"), ("f", "g")]
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    rows = choice_rows(examples, tokenizer, 16)
    assert rows.sequences_per_row == 3
    assert [pieces(tokenizer, ids) for ids in rows.tokens["input_ids"]] == [
        "[CLS] a [SEP] q b [SEP]",
        "[CLS] a [SEP] q c [SEP]",
        "[CLS] a [SEP] q d [SEP]",
        "[CLS] e [SEP] f [SEP]",
        "[CLS] e [SEP] g [SEP]",
        "",
    ]
    assert [len(ids) for ids in rows.tokens["segment_ids"]] == [6, 6, 6, 5, 5, 0]
    assert rows.targets["labels"].tolist() == [2, 0]
    assert rows.example.tolist() == [0, 1]


def test_either_all_examples_have_labels_or_none(tmp_path):
    tokenizer = make_tokenizer(tmp_path)
    with_label = ChoiceExample(Place("x", 1), "a", ("b", "c"), 1)
    without = ChoiceExample(Place("x", 2), "a", ("b", "c"), None)
    assert choice_rows([without], tokenizer, 16).targets == {}
    with pytest.raises(UserError, match="x, line 2 has no label, though other examples have one"):
        choice_rows([with_label, without], tokenizer, 16)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"choices": ["a", "b"]}, "line 1 has no column context; it has choices"),
        ({"context": "a", "choices": ["b"]}, "line 1: choices must be a list of 2 or more texts"),
        ({"context": "a", "choices": "bc"}, "line 1: choices must be a list of 2 or more texts"),
        ({"context": "a", "choices": ["b", " "]}, "line 1: choices is empty; it must be text"),
        ({"context": "", "choices": ["b", "c"]}, "line 1: context is empty"),
        (
            {"context": "a", "choices": ["b", "c"], "label": 2},
            "line 1 has the label 2; it must be from 0 to 1",
        ),
        ({"context": "a", "choices": ["b", "c"], "label": "x"}, "the label 'x'; it must be from 0 to 1"),
        ({"context": "a", "choices": ["b", "c"], "label": True}, "the label True; it must be from 0 to 1"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    with pytest.raises(UserError, match=message):
        read_choices(write(tmp_path / "x.jsonl", json.dumps(line)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("o\ta\tb\tc\td", "line 1 has 5 columns instead of CODAH's 7, or 6 without label"),
        ("o\ta\tb\tc\td\t\t0", "line 1: completion3 is empty"),
        ("o\ta\tb\tc\td\te\t4", "line 1 has the label '4'; it must be from 0 to 3"),
    ],
)
def test_bad_lines_of_codah_are_named(tmp_path, line, message):
    with pytest.raises(UserError, match=message):
        read_choices(write(tmp_path / "x.tsv", line))


def test_folds_part_the_contexts():
    contexts = [f"context {number // 3}" for number in range(90)]
    examples = [ChoiceExample(Place("x", n), context, ("a", "b"), 0) for n, context in enumerate(contexts)]
    context_of = operator.attrgetter("context")
    folds = [split_fold(examples, context_of, 5, fold) for fold in range(5)]
    assert sorted(e.place.line for _, dev in folds for e in dev) == list(range(90))
    for train, dev in folds:
        assert len(train) + len(dev) == 90
        assert not {e.context for e in train} & {e.context for e in dev}
    with pytest.raises(UserError, match="too few different texts for 5 folds"):
        split_fold(examples[:3], context_of, 5, 0)
