"""Windows against a literal transcription of the procedure of google-research/bert, and their labels."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.squad import Flags
from data_pipeline.tasks.squad.answers import find_best_answers
from data_pipeline.tasks.squad.questions import Answer, SquadExample, find_answers
from data_pipeline.tasks.squad.windows import (
    cut_passage,
    label_windows,
    leave_out_pieceless,
    make_windows,
    mark_max_context,
)
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer

SHORT = Flags(max_seq_length=20, doc_stride=5, max_query_length=6)
WORDS = ["the", "kingdom", "(1895)", "Paris's", "café", "X", "東京", "naïve-", "was", "\u00a0in", "[SEP]"]
BLANKS = [" ", "  ", "\n", "\t", "\u202f"]


def make_example(context: str, answer: str = "", start: int | None = None, question: str = "in the king"):
    answers = (Answer(answer, context.index(answer) if start is None else start),) if answer else ()
    return SquadExample("q", question, context, answers, is_impossible=not answer)


def literal_windows(example: SquadExample, tokenizer: Tokenizer, flags: Flags):
    """(tokens, segment ids, is-max-context) of each window, by loops over words and windows."""

    def tokenize(text: str) -> list[str]:
        text = text.replace("[SEP]", "[ SEP ]")  # there, special tokens in text are plain
        return tokenizer.encode(text, add_special_tokens=False).tokens

    question = tokenize(example.question)[: flags.max_query_length]
    passage = [piece for word in example.context.split() for piece in tokenize(word)]
    room = flags.max_seq_length - len(question) - 3
    spans, start = [], 0
    while start < len(passage):
        length = min(len(passage) - start, room)
        spans.append((start, length))
        if start + length == len(passage):
            break
        start += min(length, flags.doc_stride)
    for (start, length), is_max in zip(spans, literal_max_context(spans), strict=True):
        tokens = ["[CLS]", *question, "[SEP]", *passage[start : start + length], "[SEP]"]
        yield tokens, [0] * (len(question) + 2) + [1] * (length + 1), is_max


def literal_max_context(spans: list[tuple[int, int]]) -> list[list[bool]]:
    """For each window (start, length), whether each of its pieces has its maximum context there."""
    result = []
    for number, (start, length) in enumerate(spans):
        is_max = []
        for place in range(start, start + length):
            best, best_score = None, -1.0
            for other, (other_start, other_length) in enumerate(spans):
                left, right = place - other_start, other_start + other_length - 1 - place
                score = min(left, right) + 0.01 * other_length
                if left >= 0 and right >= 0 and score > best_score:
                    best, best_score = other, score
            is_max.append(best == number)
        result.append(is_max)
    return result


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(BLANKS)), min_size=1, max_size=30),
    stride=st.integers(1, 12),
    question=st.sampled_from(["", "x", "[SEP] of what?", "who was king of france in 1895 and of paris"]),
)
def test_windows_are_those_of_the_literal_procedure(tokenizer, words, stride, question):
    example = make_example("".join(word + blank for word, blank in words), question=question)
    flags = Flags(max_seq_length=20, doc_stride=stride, max_query_length=6)
    windows = make_windows([example], make_task_tokenizer(tokenizer), flags)
    expected = list(literal_windows(example, tokenizer, flags))
    assert len(windows) == len(expected)
    for row, (tokens, segments, is_max) in enumerate(expected):
        ids = windows.rows.tokens["input_ids"][row]
        assert [tokenizer.id_to_token(i) for i in ids] == tokens
        assert windows.rows.tokens["segment_ids"][row].tolist() == segments
        assert windows.max_context[row].tolist() == is_max


@pytest.mark.parametrize("length", [500, 577, 640, 701])
def test_a_longer_window_gives_more_context(length):
    starts, ends = cut_passage(length, size=370, stride=128)
    found = [mask.tolist() for mask in mark_max_context(starts, ends)]
    assert found == literal_max_context(list(zip(starts.tolist(), (ends - starts).tolist(), strict=True)))


def test_memory_for_a_passage_grows_with_its_length_alone():
    starts, ends = cut_passage(40_000, size=370, stride=128)
    tracemalloc.start()
    mark_max_context(starts, ends)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20e6


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_an_answer_is_labelled_by_the_tightest_pieces_wherever_they_all_are(tokenizer, data):
    context = " ".join(data.draw(st.lists(st.sampled_from(WORDS), min_size=8, max_size=30)))
    visible = [place for place, character in enumerate(context) if not character.isspace()]
    first = data.draw(st.sampled_from(visible))
    last = data.draw(st.sampled_from([place for place in visible if first <= place < first + 15]))
    example = make_example(context, context[first : last + 1], first)
    labelled = find_answers([example])
    windows = make_windows(labelled.examples, make_task_tokenizer(tokenizer), SHORT)
    rows = label_windows(windows, labelled.spans)
    passage = windows.passages[0]
    touched = np.flatnonzero((passage.ends > first) & (passage.starts <= last))
    for row in range(len(windows)):
        shown = windows.first_pieces[row] + np.arange(len(windows.max_context[row]))
        places = [rows.targets[f"{end}_positions"][row] for end in ("start", "end")]
        if np.isin(touched, shown).all():
            shift = windows.text_starts[row] - windows.first_pieces[row]
            assert places == [touched[0] + shift, touched[-1] + shift]
        else:
            assert places == [0, 0]


def test_an_answer_within_a_word_is_labelled_without_what_surrounds_it(tokenizer):
    labelled = find_answers([make_example("the king (1895) was on", "1895")])
    windows = make_windows(labelled.examples, make_task_tokenizer(tokenizer), SHORT)
    rows = label_windows(windows, labelled.spans)
    start, end = rows.targets["start_positions"][0], rows.targets["end_positions"][0]
    ids = rows.tokens["input_ids"][0][start : end + 1]
    assert [tokenizer.id_to_token(i) for i in ids] == ["18", "##95"]
    assert rows.targets["start_positions"].dtype == np.int32


def test_examples_of_one_context_share_its_pieces_and_keep_their_order(tokenizer):
    examples = [make_example("the king " * 10, question=question) for question in ("a", "b")]
    examples.insert(1, make_example("paris"))
    windows = make_windows(examples, make_task_tokenizer(tokenizer), SHORT)
    assert windows.passages[0] is windows.passages[2]
    assert (np.diff(windows.rows.example) >= 0).all()
    assert windows.rows.example[-1] == 2


def test_no_piece_is_skipped_when_the_stride_exceeds_the_window():
    starts, ends = cut_passage(100, 10, 30)
    assert starts.tolist() == list(range(0, 100, 10))
    assert ends[-1] == 100


def test_the_tokenizer_given_is_left_as_it_was(tokenizer):
    make_windows([make_example("the king")], make_task_tokenizer(tokenizer), SHORT)
    assert tokenizer.encode("[SEP]", add_special_tokens=False).tokens == ["[SEP]"]


def test_a_context_without_pieces_has_an_empty_window(tokenizer):
    examples = [make_example(context, question="the") for context in ("\u200b", "the king")]
    windows = make_windows(examples, make_task_tokenizer(tokenizer), SHORT)
    tokens = [tokenizer.id_to_token(i) for i in windows.rows.tokens["input_ids"][0]]
    assert tokens == ["[CLS]", "the", "[SEP]", "[SEP]"]
    assert windows.rows.example.tolist() == [0, 1]
    logits = np.zeros((2, 20), np.float32)
    for version in ("1.1", "2.0"):
        found = find_best_answers(windows, [(np.arange(2), logits, logits)], SHORT, version)
        assert [answer.best.text for answer in found] == ["", "the"]


def test_training_questions_whose_answer_has_no_piece_are_left_out(tokenizer):
    plain = make_task_tokenizer(tokenizer)
    examples = [
        make_example("\u200b", "\u200b"),
        make_example("the king", "king"),
        make_example("\u200b"),  # impossible
    ]
    examples = [dataclasses.replace(example, id=f"{n}") for n, example in enumerate(examples)]
    kept = leave_out_pieceless(find_answers(examples), plain)
    assert [example.id for example in kept.examples] == ["1", "2"]
    assert kept.spans.tolist() == [[4, 8], [0, 0]]
    assert kept.misplaced == ("0",)
    rows = label_windows(make_windows(kept.examples, plain, SHORT), kept.spans)
    assert rows.targets["start_positions"].tolist()[1] == 0
    with pytest.raises(UserError, match="no answer of the training questions gives a piece"):
        leave_out_pieceless(find_answers(examples[:1]), plain)


def test_an_answer_that_gives_no_piece_is_named(tokenizer):
    example = make_example("the \u200b king", "\u200b")
    windows = make_windows([example], make_task_tokenizer(tokenizer), SHORT)
    with pytest.raises(UserError, match="answer of question q is covered by no piece"):
        label_windows(windows, np.array([[4, 5]]))


def test_sentencepiece_answers_are_labelled_though_its_pieces_hold_the_blank_before_them():
    names = ["[CLS]", "[SEP]", "[UNK]", "▁the", "▁king", "s", "▁in", "▁paris"]
    unigram = Tokenizer(models.Unigram([(name, -1.0) for name in names], unk_id=2))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    unigram.decoder = decoders.Metaspace(prepend_scheme="first")
    labelled = find_answers([make_example("the kings in paris", "kings in", question="the")])
    windows = make_windows(labelled.examples, make_task_tokenizer(unigram), SHORT)
    rows = label_windows(windows, labelled.spans)
    start, end = rows.targets["start_positions"][0], rows.targets["end_positions"][0]
    assert [names[i] for i in rows.tokens["input_ids"][0][start : end + 1]] == ["▁king", "s", "▁in"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"doc_stride": 0}, "doc_stride is 0; it must be at least 1"),
        ({"max_query_length": 0}, "max_query_length is 0; it must be at least 1"),
        ({"max_seq_length": 67, "max_query_length": 64}, r"must exceed max_query_length \(64\) by"),
    ],
)
def test_lengths_that_leave_no_room_are_refused(tokenizer, wrong, message):
    with pytest.raises(UserError, match=message):
        make_windows([make_example("the king")], make_task_tokenizer(tokenizer), Flags(**wrong))


def test_questions_that_lose_their_end_are_counted(tokenizer):
    questions = ("in the king", "in the king " * 3, "x")  # of 3, 9 and 1 pieces
    examples = [make_example("the kingdom was", question=question) for question in questions]
    assert make_windows(examples, make_task_tokenizer(tokenizer), SHORT).rows.num_cut == 1
    assert make_windows(examples, make_task_tokenizer(tokenizer), Flags()).rows.num_cut == 0


def test_a_question_that_just_fits_is_not_cut(tmp_path):
    tokenizer = make_tokenizer(tmp_path)
    one = SquadExample("x", "a b c", "d e f", (), is_impossible=False)
    cut = [make_windows([one], tokenizer, Flags(max_query_length=n)).rows.num_cut for n in (2, 3)]
    assert cut == [1, 0]
