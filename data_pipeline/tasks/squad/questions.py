"""Reads questions about passages from the JSON of SQuAD 1.1 and 2.0, and locates answers in the passages."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import parse_json
from data_pipeline.tasks.finetuning.records import Record, changed_meanwhile, check_columns, check_unicode
from data_pipeline.tfds import TfdsSplit

QUESTION_FIELDS = ("question", "context")
"""Required fields of JSON lines, each of which asks one question."""
LARGEST_MISPLACED_FRACTION = 0.01
"""Largest fraction of misplaced answers in a training file; more means that its offsets count other units."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """An annotator's answer as the file has it; the text may be misplaced, which `find_answers` checks."""

    text: str
    start: int
    """Offset in the context of its first character."""


@dataclasses.dataclass(frozen=True)
class SquadExample:
    """A question about a passage, its context."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """The annotators' answers, in the file's order; empty if there are none or the file has no answers."""
    is_impossible: bool
    """Whether the file says that the context does not answer the question (SQuAD 2.0)."""


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledExamples:
    """Examples to train on, with the span of each one's answer."""

    examples: tuple[SquadExample, ...]
    spans: np.ndarray
    """int32 [E, 2]: first character of the answer and the character after its last; (0, 0) if impossible."""
    misplaced: tuple[str, ...]
    """Ids of the questions left out because their answer is not where the file says or has no piece."""


def read_squad(path: Path | TfdsSplit) -> tuple[SquadExample, ...]:
    """The questions of a file, or of SQuAD's TensorFlow dataset, in its order.

    Raises:
      UserError: the file can't be read, is not SQuAD's JSON, has no questions, has two of the same id, or has
        an empty context.
    """
    if isinstance(path, TfdsSplit):
        return _check_ids(_tfds_examples(path), path)
    return _check_ids((_example(*found, path) for found in _questions(path)), path)


def read_unanswered(path: Path) -> tuple[SquadExample, ...]:
    """As `read_squad`, for a file to predict: answers in it are ignored.

    Raises UserError also if a question has a prediction already.
    """
    return _check_ids((_unanswered(*found, path) for found in _questions(path)), path)


def require_answers(examples: Sequence[SquadExample], path: Path | TfdsSplit) -> None:
    """Raises UserError naming the first question without an answer to score by; SQuAD 1.1 has none such."""
    for example in examples:
        if not example.answers:
            raise UserError(f"question {example.id} of {path} has no answer; SQuAD 1.1 asks for one or more")


def read_question(record: Record) -> SquadExample:
    """A question without answers from a record with {"question", "context"} and optionally "id".

    Raises UserError if a text is empty.
    """
    name = str(record.fields.get("id", record.place.line))
    return SquadExample(name, record.text("question"), record.text("context"), (), is_impossible=False)


def add_predictions(path: Path, predictions: Mapping[str, Any]) -> Any:
    """The JSON of a SQuAD file, with `predictions[id]` added to each question as `prediction`.

    Raises UserError if the file has other questions by now.
    """
    content = _read_json(path)
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    question["prediction"] = predictions[question["id"]]
    except (KeyError, TypeError):
        raise changed_meanwhile(path, "questions") from None
    return content


def find_answers(examples: Sequence[SquadExample]) -> LabelledExamples:
    """The examples with the character span of each question's first answer in its context.

    Blanks may differ between answer and context, and the answer may be a few characters off, within the
    words at its offset. Questions whose answer is not found there are left out, as in google-research/bert's
    run_squad.py.

    Raises:
      UserError: a question that is not marked impossible has no answer, or more than
        `LARGEST_MISPLACED_FRACTION` of the answers are misplaced.
    """
    kept, spans, misplaced = [], [], []
    for example in examples:
        span = _find_answer(example)
        if span is None:
            misplaced.append(example.id)
        else:
            kept.append(example)
            spans.append(span)
    if len(misplaced) > LARGEST_MISPLACED_FRACTION * len(examples):
        raise UserError(
            f"{len(misplaced)} of {len(examples)} answers, the first of question {misplaced[0]}, are not at "
            f"their answer_start; it must count the characters of the context before the answer"
        )
    return LabelledExamples(tuple(kept), np.array(spans, np.int32).reshape(-1, 2), tuple(misplaced))


def _read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise bad_input(error, path, f"{path} can't be read: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path} is not JSON in UTF-8; SQuAD files are") from None


def _check_ids(found: Iterator[SquadExample], path: Path | TfdsSplit) -> tuple[SquadExample, ...]:
    examples = tuple(found)
    if not examples:
        raise UserError(f"{path} has no questions")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise UserError(f"{path} has two questions of id {example.id}; ids must differ")
        seen.add(example.id)
    return examples


def _questions(path: Path) -> Iterator[tuple[Any, str]]:
    """Each question of a file, with its context."""
    for article in _get(_read_json(path), "data", list, f"{path}"):
        for paragraph in _get(article, "paragraphs", list, f"an article of {path}"):
            context = _get(paragraph, "context", str, f"a paragraph of {path}")
            for question in _get(paragraph, "qas", list, f"a paragraph of {path}"):
                yield question, context


def _tfds_examples(split: TfdsSplit) -> Iterator[SquadExample]:
    check_columns(split, split.names, ("id", "question", "context", "answers"))
    for question in split.records():
        answers = question["answers"]  # a list of texts and one of offsets
        pairs = zip(answers["text"], answers["answer_start"], strict=True)
        question["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
        yield _example(question, question["context"], split)


def _example(question: Any, context: str, path: Path | TfdsSplit) -> SquadExample:
    example = _question(question, context, path)
    place = f"question {example.id} of {path}"
    answers = _get({"answers": [], **question}, "answers", list, place)
    return dataclasses.replace(
        example,
        answers=tuple(
            Answer(_get(a, "text", str, place), _get(a, "answer_start", int, place)) for a in answers
        ),
        is_impossible=_get({"is_impossible": False, **question}, "is_impossible", bool, place),
    )


def _question(question: Any, context: str, path: Path | TfdsSplit) -> SquadExample:
    """The example of one question, without answers."""
    name = _get(question, "id", str, f"a question of {path}")
    text = _get(question, "question", str, f"question {name} of {path}")
    if not context.strip():
        raise UserError(f"the context of question {name} of {path} is empty")
    return SquadExample(name, text, context, (), is_impossible=False)


def _unanswered(question: Any, context: str, path: Path) -> SquadExample:
    example = _question(question, context, path)
    if "prediction" in question:
        raise UserError(f"{path} has predictions already; give the file without them")
    return example


def _get(item: Any, key: str, kind: type, place: str) -> Any:
    if not isinstance(item, dict) or not isinstance(item.get(key), kind):
        raise UserError(f"{place} has no {key!r} that is a {kind.__name__}; SQuAD's format asks for it")
    if kind is str:
        check_unicode(place, repr(key), item[key])
    return item[key]


def _find_answer(example: SquadExample) -> tuple[int, int] | None:
    """The first answer's span: the occurrence nearest to its offset, within the words there; or None."""
    if example.is_impossible:
        return 0, 0
    if not example.answers:
        raise UserError(f"question {example.id} has no answer and is not marked is_impossible")
    answer, context = example.answers[0], example.context
    if not 0 <= answer.start < len(context):
        return None
    end = answer.start + len(answer.text)
    if answer.text and answer.text == answer.text.strip() and context[answer.start : end] == answer.text:
        return answer.start, end
    words = answer.text.split()
    if not words:
        return None
    first = answer.start - len(re.split(r"\s", context[: answer.start])[-1])  # where its words begin
    last = end + len(re.split(r"\s", context[end:], maxsplit=1)[0])
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    found = [match.span() for match in pattern.finditer(context, first, last)]
    return min(found, key=lambda span: abs(span[0] - answer.start), default=None)
