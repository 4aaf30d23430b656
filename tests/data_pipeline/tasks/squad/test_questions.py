"""SQuAD's files: what is read, and what is said of what can't be."""

import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.squad.questions import (
    Answer,
    SquadExample,
    add_predictions,
    find_answers,
    read_squad,
    read_unanswered,
)
from tests.data_pipeline.tasks.files import squad_json, write

CONTEXT = "The  king of\nFrance was in Paris."


def question(name: str = "q1", **more) -> dict:
    return {"id": name, "question": "Where?", "answers": [{"text": "Paris", "answer_start": 27}], **more}


def example(name: str, text: str, start: int) -> SquadExample:
    return SquadExample(name, "Where?", CONTEXT, (Answer(text, start),), is_impossible=False)


def test_reads_both_versions_and_files_without_answers(tmp_path):
    impossible = {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True}
    unknown = {"id": "q3", "question": "Who?"}
    assert read_squad(write(tmp_path / "f.json", squad_json(CONTEXT, [question(), impossible, unknown]))) == (
        SquadExample("q1", "Where?", CONTEXT, (Answer("Paris", 27),), is_impossible=False),
        SquadExample("q2", "Why?", CONTEXT, (), is_impossible=True),
        SquadExample("q3", "Who?", CONTEXT, (), is_impossible=False),
    )


def test_a_byte_order_mark_may_stand_before_it(tmp_path):
    content = squad_json(CONTEXT, [question()])
    assert read_squad(write(tmp_path / "a.json", "\ufeff" + content)) == read_squad(
        write(tmp_path / "b.json", content)
    )


def test_answers_of_a_file_to_predict_are_not_looked_at(tmp_path):
    odd = question(answers="hidden", is_impossible=None)
    assert read_unanswered(write(tmp_path / "f.json", squad_json(CONTEXT, [odd]))) == (
        SquadExample("q1", "Where?", CONTEXT, (), is_impossible=False),
    )


@pytest.mark.parametrize("now", [squad_json(CONTEXT, [question("q1"), question("q2")]), '{"data": [{}]}'])
def test_a_file_that_was_changed_while_it_was_predicted_is_named(tmp_path, now):
    with pytest.raises(UserError, match="has other questions than when it was first read"):
        add_predictions(write(tmp_path / "f.json", now), {"q1": "Paris"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "is not JSON"),
        ("[]", "has no 'data' that is a list"),
        ('{"data": []}', "has no questions"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "paragraph .* has no 'context'"),
        (b"\xff", "is not JSON in UTF-8"),
    ],
)
def test_says_in_one_line_why_a_file_is_not_squad(tmp_path, content, message):
    path = tmp_path / "f.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as error:
        read_squad(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("questions", "context", "message"),
    [
        ([question(answers=[{"text": "Paris"}])], CONTEXT, "question q1 .* no 'answer_start'"),
        ([{**question(), "question": None}], CONTEXT, "question q1 .* no 'question'"),
        ([question(), question()], CONTEXT, "two questions of id q1"),
        ([question()], " \n", "context of question q1 .* is empty"),
        ([{**question(), "question": "\ud83d?"}], CONTEXT, "question q1 .* 'question' has half a character"),
        ([question(is_impossible="no")], CONTEXT, "question q1 .* no 'is_impossible' that is a bool"),
    ],
)
def test_names_the_question_that_is_wrong(tmp_path, questions, context, message):
    with pytest.raises(UserError, match=message):
        read_squad(write(tmp_path / "f.json", squad_json(context, questions)))


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Paris", 27, "Paris"),
        ("king of France", 5, "king of\nFrance"),  # other blanks
        ("The king", 0, "The  king"),
        ("Paris", 29, "Paris"),  # off, but within the word
        ("Fran", 13, "Fran"),
        (" Paris ", 26, "Paris"),
    ],
)
def test_finds_answers_at_their_offset_but_for_blanks(text, start, found):
    (span,) = find_answers([example("q", text, start)]).spans.tolist()
    assert CONTEXT[slice(*span)] == found


def test_finds_the_nearest_of_several_in_the_word():
    twice = SquadExample("q", "Which?", "a Tom-Tom", (Answer("Tom", 7),), is_impossible=False)
    assert find_answers([twice]).spans.tolist() == [[6, 9]]


def test_an_offset_before_the_passage_is_elsewhere():
    examples = [example(f"q{i}", "Paris", 27) for i in range(199)]
    before = SquadExample("before", "Where?", CONTEXT, (Answer(CONTEXT[-6:-1], -6),), is_impossible=False)
    assert find_answers([*examples, before]).misplaced == ("before",)


def test_leaves_out_the_few_answers_that_are_elsewhere():
    examples = [example(f"q{i}", "Paris", 27) for i in range(199)] + [example("bad", "Paris", 0)]
    labelled = find_answers(examples)
    assert labelled.misplaced == ("bad",)
    assert labelled.examples == tuple(examples[:-1])
    assert labelled.spans.shape == (199, 2)


def test_many_misplaced_answers_are_an_error():
    examples = [example(f"q{i}", "Paris", 27) for i in range(50)] + [example("bad", "Paris", 0)]
    with pytest.raises(UserError, match="1 of 51 answers, the first of question bad"):
        find_answers(examples)


def test_an_impossible_question_has_no_span_and_a_possible_one_needs_an_answer():
    impossible = SquadExample("q", "Why?", CONTEXT, (Answer("Paris", 27),), is_impossible=True)
    assert find_answers([impossible]).spans.tolist() == [[0, 0]]
    with pytest.raises(UserError, match="question q has no answer"):
        find_answers([SquadExample("q", "Why?", CONTEXT, (), is_impossible=False)])


def test_predictions_that_are_there_stay(tmp_path):
    content = squad_json(CONTEXT, [question(prediction={"text": "mine"})])
    with pytest.raises(UserError, match=r"f\.json has predictions already"):
        read_unanswered(write(tmp_path / "f.json", content))
