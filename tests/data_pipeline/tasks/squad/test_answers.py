"""Answers against a literal transcription of run_squad.py's loops, and their files."""

import json
import math

import numpy as np
import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.squad import Flags
from data_pipeline.tasks.squad.answers import SquadVersion, find_best_answers, write_answers
from data_pipeline.tasks.squad.questions import Answer, SquadExample, find_answers
from data_pipeline.tasks.squad.windows import Windows, label_windows, make_windows

FLAGS = Flags(max_seq_length=20, doc_stride=4, max_query_length=5)
CONTEXTS = (
    "The king of France was in Paris.",
    "the king, the king and the kingdom of the French in the 1895 café; on x the king was the king of Paris",
    "In 東京 on 18.95 the kingdom was the X-King's, was it in Paris in 1895 (or in France) in the year 95?",
)


@pytest.fixture(scope="module")
def windows(tokenizer) -> Windows:
    examples = [
        SquadExample(f"q{number}", "the king?", context, (Answer("the", 0),), is_impossible=False)
        for number, context in enumerate(CONTEXTS)
    ]
    return make_windows(examples, make_task_tokenizer(tokenizer), FLAGS)


def literal_answers(windows: Windows, start_logits, end_logits, flags: Flags, version: SquadVersion):
    """For each example (texts, starts, ends, probabilities) of its n-best list, and its null odds."""

    def highest(logits) -> list[int]:
        ranked = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
        return [place for place, _ in ranked[: flags.n_best_size]]

    for number, example in enumerate(windows.examples):
        passage = windows.passages[number]
        spans, null = [], (math.inf, 0.0, 0.0)
        for row in np.flatnonzero(windows.rows.example == number):
            length = len(windows.rows.tokens["input_ids"][row])
            starts, ends = start_logits[row][:length].tolist(), end_logits[row][:length].tolist()
            null = min(null, (starts[0] + ends[0], starts[0], ends[0]), key=lambda n: n[0])
            text_start, is_max = windows.text_starts[row], windows.max_context[row]
            for start in highest(starts):
                for end in highest(ends):
                    first, last = start - text_start, end - text_start
                    if not (0 <= first < len(is_max) and 0 <= last < len(is_max)):
                        continue
                    if not is_max[first] or end < start or end - start + 1 > flags.max_answer_length:
                        continue
                    a = passage.starts[first + windows.first_pieces[row]]
                    b = passage.ends[last + windows.first_pieces[row]]
                    spans.append((example.context[a:b], starts[start], ends[end]))
        if version == "2.0":
            spans.append(("", *null[1:]))
        spans.sort(key=lambda span: span[1] + span[2], reverse=True)
        n_best, seen = [], set()
        for span in spans:
            if len(n_best) >= flags.n_best_size:
                break
            if span[0] not in seen:
                seen.add(span[0])
                n_best.append(span)
        if version == "2.0" and "" not in seen:
            n_best.append(("", *null[1:]))
        n_best = n_best or [("", 0.0, 0.0)]
        weights = [math.exp(start + end) for _, start, end in n_best]
        best = next((span for span in n_best if span[0]), ("", 0.0, 0.0))
        probabilities = [weight / sum(weights) for weight in weights]
        yield n_best, probabilities, null[0] - best[1] - best[2]


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("n_best_size", [4, 20])
@pytest.mark.parametrize("max_answer_length", [3, 30])
@pytest.mark.parametrize("kind", ["smooth", "tied"])
def test_answers_are_those_of_the_literal_loops(windows, version, n_best_size, max_answer_length, kind):
    flags = Flags(n_best_size=n_best_size, max_answer_length=max_answer_length)
    rng = np.random.default_rng(0)
    for _ in range(20):
        logits = rng.normal(size=(2, len(windows), FLAGS.max_seq_length))
        starts, ends = (logits if kind == "smooth" else np.round(logits)).astype(np.float32)
        found = find_best_answers(windows, [(np.arange(len(windows)), starts, ends)], flags, version)
        expected = literal_answers(windows, starts, ends, flags, version)
        for answer, (n_best, probabilities, null_odds) in zip(found, expected, strict=True):
            assert [(c.text, c.start_logit, c.end_logit) for c in answer.candidates] == n_best
            np.testing.assert_allclose(answer.probabilities(), probabilities, rtol=1e-12)
            assert answer.null_odds == pytest.approx(null_odds, abs=1e-12)
            assert answer.best.text == next((text for text, *_ in n_best if text), "")
            context = CONTEXTS[int(answer.id[1:])]
            for candidate in (answer.best, *answer.candidates):
                assert not candidate.text or context[candidate.start : candidate.end] == candidate.text


def test_windows_may_come_in_any_order_and_in_batches_of_any_width(windows):
    rng = np.random.default_rng(1)
    starts, ends = rng.normal(size=(2, len(windows), FLAGS.max_seq_length)).astype(np.float32)
    whole = find_best_answers(windows, [(np.arange(len(windows)), starts, ends)], FLAGS, "2.0")

    def batches():
        for row in rng.permutation(len(windows)):
            length = len(windows.rows.tokens["input_ids"][row])
            wide = np.full((2, 1, length + 9), 100.0, np.float32)  # what a model says of padding
            wide[:, 0, :length] = starts[row, :length], ends[row, :length]
            yield np.array([row]), wide[0], wide[1]

    assert find_best_answers(windows, batches(), FLAGS, "2.0") == whole


def test_perfect_logits_give_the_labelled_answers_in_the_words_of_the_passage(tokenizer):
    answers = ["Paris", "café; on x", "X-King's, was"]
    examples = [
        SquadExample(f"q{n}", "the king?", context, (Answer(text, context.index(text)),), is_impossible=False)
        for n, (context, text) in enumerate(zip(CONTEXTS, answers, strict=True))
    ]
    labelled = find_answers(examples)
    windows = make_windows(labelled.examples, make_task_tokenizer(tokenizer), FLAGS)
    targets = label_windows(windows, labelled.spans).targets
    rows = np.arange(len(windows))
    starts, ends = np.zeros((2, len(windows), FLAGS.max_seq_length), np.float32)
    starts[rows, targets["start_positions"]] = ends[rows, targets["end_positions"]] = 10
    found = find_best_answers(windows, [(rows, starts, ends)], FLAGS, "1.1")
    assert [answer.text(None) for answer in found] == answers


@pytest.mark.parametrize("text", ["cafe\u0301", "cafe\u0301\u0323", "x\u0301", "cafe\u0301 in"])
@pytest.mark.parametrize("after", ["", ".", " in Paris", "\u00a0x"])
def test_an_answer_keeps_the_marks_that_the_vocabulary_has_not(tokenizer, text, after):
    example = SquadExample("q", "the?", f"the {text}{after}", (Answer(text, 4),), is_impossible=False)
    labelled = find_answers([example])
    windows = make_windows(labelled.examples, make_task_tokenizer(tokenizer), FLAGS)
    targets = label_windows(windows, labelled.spans).targets
    starts, ends = np.zeros((2, 1, FLAGS.max_seq_length), np.float32)
    starts[0, targets["start_positions"]] = ends[0, targets["end_positions"]] = 10
    (found,) = find_best_answers(windows, [(np.arange(1), starts, ends)], FLAGS, "1.1")
    assert found.text(None) == text


def test_no_answer_wins_where_its_odds_exceed_the_threshold(windows):
    starts, ends = np.zeros((2, len(windows), FLAGS.max_seq_length), np.float32)
    starts[:, 0] = 3.0
    answer = find_best_answers(windows, [(np.arange(len(windows)), starts, ends)], FLAGS, "2.0")[0]
    assert answer.null_odds == 3.0
    assert answer.text(2.9) == ""
    assert answer.text(3.0) == answer.text(None) == answer.best.text != ""


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_a_question_without_any_valid_span_has_an_empty_answer(windows, version):
    starts, ends = np.zeros((2, len(windows), FLAGS.max_seq_length), np.float32)
    starts[:, :5] = ends[:, :5] = 1.0  # the question, so none of the best is in the passage
    batch = (np.arange(len(windows)), starts, ends)
    answer = find_best_answers(windows, [batch], Flags(n_best_size=3), version)[0]
    assert [candidate.text for candidate in answer.candidates] == [""]
    assert answer.text(None) == ""


def test_logits_of_every_window_are_needed(windows):
    logits = np.zeros((1, FLAGS.max_seq_length), np.float32)
    with pytest.raises(ValueError, match="windows are missing"):
        find_best_answers(windows, [(np.array([0]), logits, logits)], FLAGS, "1.1")


def test_files_are_those_that_squad_reads(windows, tmp_path):
    starts, ends = np.zeros((2, len(windows), FLAGS.max_seq_length), np.float32)
    starts[windows.rows.example == 0, 0] = 9.0
    found = find_best_answers(windows, [(np.arange(len(windows)), starts, ends)], FLAGS, "2.0")
    write_answers(tmp_path / "out", found, null_threshold=1.0)
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}
    assert files.keys() == {"predictions.json", "nbest_predictions.json", "null_odds.json"}
    assert files["predictions.json"] == {"q0": "", "q1": found[1].best.text, "q2": found[2].best.text}
    assert files["null_odds.json"] == {"q0": 9.0, "q1": 0.0, "q2": 0.0}
    best = files["nbest_predictions.json"]["q0"][0]
    assert best.keys() == {"text", "probability", "start_logit", "end_logit"}
    assert best["text"] == ""

    write_answers(tmp_path / "v1", found, null_threshold=None)
    assert not (tmp_path / "v1" / "null_odds.json").exists()


@pytest.mark.parametrize("name", ["n_best_size", "max_answer_length"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(UserError, match=f"{name} is 0; it must be at least 1"):
        Flags(**{name: 0})
