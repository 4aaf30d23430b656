"""Relations: SemEval's and a user's files, and rows in which the two entities can be found."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer
from data_pipeline.tasks.finetuning.records import Place
from data_pipeline.tasks.relation import Entity, RelationExample, read_relations, read_semeval, relation_rows
from tests.data_pipeline.tasks.files import write
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer, pieces

UNUSED = tuple(f"[unused{number}]" for number in range(1, 5))

SEMEVAL = (
    '1\t"An array of <e1>antenna</e1> and <e2>"elements"</e2>."\r\n'
    "Component-Whole(e2,e1)\r\n"
    "Comment: Not a collection.\r\n"
    "\r\n"
    '2\t"The <e2>child</e2> was in <e1>wrap</e1>."\r\n'
    "Other\r\n"
    "Comment:\r\n"
    "\r\n"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> TaskTokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"), *UNUSED)


def spans(example: RelationExample) -> tuple[str, str]:
    head, tail = example.head, example.tail
    return example.text[head.start : head.stop], example.text[tail.start : tail.stop]


def make_example(text: str, head: str, tail: str, *, head_type: str | None = None) -> RelationExample:
    start, behind = text.index(head), text.index(tail)
    return RelationExample(
        Place("x", 1),
        text,
        Entity(start, start + len(head), head_type),
        Entity(behind, behind + len(tail), "BIG_CITY" if head_type else None),
        "r",
    )


def test_semeval_is_read(tmp_path):
    first, second = read_semeval(write(tmp_path / "x.txt", SEMEVAL))
    assert first.text == 'An array of antenna and "elements".'
    assert (spans(first), first.label, first.place.line) == (
        ("antenna", '"elements"'),
        "Component-Whole(e2,e1)",
        1,
    )
    assert (spans(second), second.label, second.place.line) == (("wrap", "child"), "Other", 5)


def test_files_in_another_encoding_are_read(tmp_path):
    semeval, lines = tmp_path / "x.txt", tmp_path / "x.jsonl"
    semeval.write_text('1\t"The <e1>café</e1> is in <e2>Rom</e2>."\nOther\n', encoding="latin-1")
    line = {"text": "The café in Rom", "head": {"start": 4, "stop": 8}, "tail": {"start": 12, "stop": 15}}
    lines.write_text(json.dumps({**line, "label": "in"}, ensure_ascii=False), encoding="latin-1")
    for read, file in ((read_semeval, semeval), (read_relations, lines)):
        (example,) = read(file, "latin-1")
        assert spans(example) == ("café", "Rom")
        with pytest.raises(UserError, match="is not UTF-8"):
            read(file)


def test_semevals_test_file_has_no_relations(tmp_path):
    content = '8001\t"<e1>a</e1> <e2>b</e2>"\n8002\t"<e1>c</e1> <e2>d</e2>"\nComment: x\n'
    assert [(e.text, e.label) for e in read_semeval(write(tmp_path / "x.txt", content))] == [
        ("a b", None),
        ("c d", None),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('1\t"<e1>a</e1> and b"\nOther\n', r"x\.txt, line 1 does not have <e1></e1> and <e2></e2> once each"),
        (
            f'{SEMEVAL}3\t"<e1>a</e1> <e2></e2>"\nOther\n',
            r"x\.txt, line 9: an entity from 2 to 2 holds no text",
        ),
        (SEMEVAL.replace("2\t", "2 "), r"x\.txt, line 5 is neither the relation of line 1 nor a number"),
        (
            '1\t"<e1>a</e1> <e2>b</e2>"\n2 "<e1>c</e1> <e2>d</e2>"\n',
            r"x\.txt, line 2 is neither the relation of line 1 nor a number",
        ),
        ("\t\n", r"x\.txt has no example"),
        ("A sentence.\n", r"x\.txt, line 1 is not a number, a tab and a sentence in quotes"),
        ("", r"x\.txt is empty"),
    ],
)
def test_bad_semeval_is_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_semeval(write(tmp_path / "x.txt", content))


def test_json_gives_spans_and_types(tmp_path):
    line = {
        "text": "Ann in Rom",
        "head": {"start": 0, "stop": 3, "type": "PERSON"},
        "tail": {"start": 7, "stop": 10},
        "label": "lives_in",
    }
    (example,) = read_relations(write(tmp_path / "x.jsonl", json.dumps(line)))
    assert spans(example) == ("Ann", "Rom")
    assert (example.head.type, example.tail.type, example.label) == ("PERSON", None, "lives_in")


@pytest.mark.parametrize(
    ("head", "tail", "message"),
    [
        ((0, 3), (2, 6), "line 1: the two entities overlap"),
        ((0, 3), (7, 11), "line 1: an entity from 7 to 11 holds no text; the text has 10 characters"),
        ((0, 3), (3, 4), "line 1: an entity from 3 to 4 holds no text"),
        ((0, 3), (8, 7), "line 1: an entity from 8 to 7 holds no text"),
        ((0, "3"), (7, 10), "line 1: head must be"),
        ((0, 3), (True, 10), "line 1: tail must be"),
    ],
)
def test_bad_spans_are_named(tmp_path, head, tail, message):
    line = {"text": "Ann in Rom"} | {
        name: {"start": start, "stop": stop} for name, (start, stop) in (("head", head), ("tail", tail))
    }
    with pytest.raises(UserError, match=message):
        read_relations(write(tmp_path / "x.jsonl", json.dumps(line)))


def test_a_type_that_is_no_text_is_named(tmp_path):
    head, tail = {"start": 0, "stop": 3, "type": 7}, {"start": 7, "stop": 10}
    line = {"text": "Ann in Rom", "head": head, "tail": tail}
    with pytest.raises(UserError, match="line 1: the type of head is 7; it must be text"):
        read_relations(write(tmp_path / "x.jsonl", json.dumps(line)))


def test_entities_stand_between_their_markers(tokenizer):
    examples = [make_example("a b c d e", "b", "d"), make_example("a b c d e", "e", "a")]
    rows = relation_rows(examples, tokenizer, 32, "markers", {})
    assert [pieces(tokenizer, ids) for ids in rows.tokens["input_ids"]] == [
        "[CLS] a [unused1] b [unused2] c [unused3] d [unused4] e [SEP]",
        "[CLS] [unused3] a [unused4] b c d [unused1] e [unused2] [SEP]",
    ]
    assert rows.targets["entity_positions"].tolist() == [[2, 6], [7, 1]]
    assert rows.num_cut == 0


def test_signs_mark_where_the_vocabulary_has_no_unused_pieces(tmp_path):
    plain = make_tokenizer(tmp_path / "signs", "$", "#")
    rows = relation_rows([make_example("a b", "a", "b")], plain, 32, "markers", {})
    assert pieces(plain, rows.tokens["input_ids"][0]) == "[CLS] $ a $ # b # [SEP]"
    with pytest.raises(UserError, match=r"has neither \[unused1\] to \[unused4\] nor \$ and #"):
        relation_rows([make_example("a b", "a", "b")], make_tokenizer(tmp_path / "none"), 32, "markers", {})


def test_types_hide_the_entities(tmp_path):
    tokenizer = make_tokenizer(tmp_path, "head", "tail", "person", "big", "city")
    example = make_example("a ann, b", "b", "ann", head_type="PERSON")
    rows = relation_rows([example], tokenizer, 32, "types", {})
    assert pieces(tokenizer, rows.tokens["input_ids"][0]) == "[CLS] a tail big city , head person [SEP]"
    assert rows.targets["entity_positions"].tolist() == [[6, 2]]
    with pytest.raises(UserError, match="x, line 1: an entity has no type"):
        relation_rows([make_example("a b", "a", "b")], tokenizer, 32, "types", {})


@settings(max_examples=80, deadline=None)
@given(
    before=st.integers(0, 30),
    between=st.integers(0, 30),
    after=st.integers(0, 30),
    max_length=st.integers(10, 40),
)
def test_cut_texts_keep_both_entities(tokenizer, before, between, after, max_length):
    text = " ".join(["a"] * before + ["x", "x"] + ["b"] * between + ["y", "y"] + ["c"] * after)
    rows = relation_rows([make_example(text, "x x", "y y")], tokenizer, max_length, "markers", {})
    sequence = pieces(tokenizer, rows.tokens["input_ids"][0])
    whole = before + between + after + 8
    assert len(sequence.split()) == min(max_length, whole + 2)
    assert rows.num_cut == (whole + 2 > max_length)
    assert "[unused1] x x [unused2]" in sequence
    assert "[unused3] y y [unused4]" in sequence
    head, tail = rows.targets["entity_positions"][0]
    assert (sequence.split()[head], sequence.split()[tail]) == ("[unused1]", "[unused3]")
    assert sequence.count("b") == min(between, max_length - 10)


def test_entities_that_alone_are_too_long_are_named(tokenizer):
    with pytest.raises(UserError, match="x, line 1: its entities have 11 tokens; max_seq_length leaves 8"):
        relation_rows([make_example("abcd efg", "abcd", "efg")], tokenizer, 10, "markers", {})


@pytest.mark.parametrize(
    ("max_length", "text"),
    [
        (15, "d [unused1] x [unused2] e f g h [unused3] y [unused4] i j [SEP]"),
        (14, "d [unused1] x [unused2] e f g h [unused3] y [unused4] i [SEP]"),
        (11, "[unused1] x [unused2] e f h [unused3] y [unused4] [SEP]"),
    ],
)
def test_what_is_cut_is_furthest_from_the_entities(tokenizer, max_length, text):
    example = make_example("a b c d x e f g h y i j k", "x", "y")
    rows = relation_rows([example], tokenizer, max_length, "markers", {})
    assert pieces(tokenizer, rows.tokens["input_ids"][0]) == f"[CLS] {text}"
