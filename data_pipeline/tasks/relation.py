"""Relation classification: a text, two entities in it, and the relation of head to tail.

In rows the entities are marked, or replaced by their types.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from data_pipeline.corpus.truncation import truncated_lengths
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, check_length, join, make_rows
from data_pipeline.tasks.finetuning.flags import TaskFlags
from data_pipeline.tasks.finetuning.records import Place, Record, check_unicode, read_lines, read_records
from data_pipeline.tasks.finetuning.rows import Rows

EntityStyle = Literal["markers", "types"]
"""markers: a piece before and after each entity (Baldini Soares et al. 2019, "entity markers"; Wu and He
2019 if the vocabulary has no unused pieces). types: the words of each entity are replaced by its role and
type (Zhang et al. 2017, "entity masking"), so that a model can't memorise names."""

RELATION_FIELDS = ("text", "head", "tail")
PlacedLines: TypeAlias = list[tuple[Place, str]]

_NUMBERED = re.compile(r'\d+\t"?(.*?)"?\s*')
_TAG = re.compile(r"(</?e[12]>)")
_TAG_ORDERS = (["<e1>", "</e1>", "<e2>", "</e2>"], ["<e2>", "</e2>", "<e1>", "</e1>"])
_COMMENT = "Comment"
_OTHER = "Other"
_UNUSED = ("[unused1]", "[unused2]", "[unused3]", "[unused4]")
_SIGNS = ("$", "$", "#", "#")


@dataclasses.dataclass(frozen=True)
class Flags(TaskFlags):
    """A directory with train, dev and optionally test: .jsonl with {"text", "head": {"start", "stop"},
    "tail": {"start", "stop"}, "label"} per line, or .txt in the form of SemEval-2010 Task 8."""

    max_seq_length: int = 128
    """Maximum length of a text, in tokens; longer ones are cut, away from the entities."""
    entities: EntityStyle = "markers"
    """How entities are shown. markers: with a piece before and after. types: replaced by their types."""
    encoding: str = "utf-8"
    """Encoding of the files, such as latin-1."""
    files_only: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class Entity:
    """The part of a text that names an entity."""

    start: int
    """Offset in the text of its first character."""
    stop: int
    """Offset in the text of the character after its last one."""
    type: str | None = None
    """Type such as PERSON; None if the data set has no types."""


@dataclasses.dataclass(frozen=True)
class RelationExample:
    """A text with two entities, which do not overlap; either may come first."""

    place: Place
    text: str
    head: Entity
    tail: Entity
    label: str | None
    """None in examples to predict."""


def read_semeval(file: Path, encoding: str = "utf-8") -> list[RelationExample]:
    """The examples of a file in the form of SemEval-2010 Task 8.

    Head is e1, tail is e2, and labels are words such as Cause-Effect(e2,e1). An example is a numbered line
    with a sentence in quotes that has <e1></e1> and <e2></e2>; then, except in the test file, a line with its
    relation; then optionally a line that begins with Comment. Blank lines are ignored.

    Raises:
      UserError: no such file, not in the encoding, empty, an example without both entities, or a line of none
        of these kinds.
    """
    return [parse_semeval(lines) for lines in split_semeval(file, encoding)]


def read_relations(file: Path, encoding: str = "utf-8") -> list[RelationExample]:
    """Examples from JSONL: {"text", "head": {"start", "stop"}, "tail": {"start", "stop"}}, and maybe "label".

    Offsets count characters; `stop` is exclusive. An entity may have a "type". Raises UserError as
    `read_records`, and if an entity is empty, outside the text or overlaps with the other one.
    """
    return [parse_relation(record) for record in read_records(file, RELATION_FIELDS, encoding)]


def split_semeval(file: Path, encoding: str = "utf-8") -> Iterator[PlacedLines]:
    """The lines of each example, without blank ones."""
    example: PlacedLines = []
    for place, line in read_lines(file, encoding):
        if _NUMBERED.fullmatch(line) and example:
            yield example
            example = []
        if line.strip():
            example.append((place, line))
    if not example:
        raise UserError(f"{file} has no example")
    yield example


def parse_semeval(lines: PlacedLines) -> RelationExample:
    """One example of `read_semeval`, from its lines. Raises UserError as that does."""
    (place, line), *rest = lines
    numbered = _NUMBERED.fullmatch(line)
    if not numbered:
        raise UserError(f"{place} is not a number, a tab and a sentence in quotes")
    texts, tags = (parts := _TAG.split(numbered[1]))[::2], parts[1::2]
    if tags not in _TAG_ORDERS:
        raise UserError(f"{place} does not have <e1></e1> and <e2></e2> once each")
    borders = list(itertools.accumulate(map(len, texts)))
    spans = {tags[0]: Entity(borders[0], borders[1]), tags[2]: Entity(borders[2], borders[3])}
    relations = [(where, text.strip()) for where, text in rest if not text.startswith(_COMMENT)]
    for number, (where, relation) in enumerate(relations):
        if number or _TAG.search(relation):
            raise UserError(
                f"{where} is neither the relation of line {place.line} nor a number, a tab and a sentence"
            )
    text, head, tail = "".join(texts), spans["<e1>"], spans["<e2>"]
    _check_entities(place, text, head, tail)
    return RelationExample(place, text, head, tail, relations[0][1] if relations else None)


def parse_relation(record: Record) -> RelationExample:
    """One example of `read_relations`. Raises UserError as that does."""
    text = record.text("text")
    head, tail = _parse_entity(record, "head"), _parse_entity(record, "tail")
    _check_entities(record.place, text, head, tail)
    return RelationExample(record.place, text, head, tail, record.label("label"))


def _parse_entity(record: Record, name: str) -> Entity:
    match record.fields[name]:
        case {"start": start, "stop": stop, **rest} if type(start) is type(stop) is int:  # bool is no offset
            type_ = rest.get("type")
            if type_ is not None and not isinstance(type_, str):
                raise UserError(f"{record.place}: the type of {name} is {type_!r:.40}; it must be text")
            check_unicode(record.place, f"the type of {name}", type_ or "")
            return Entity(start, stop, type_)
    raise UserError(f'{record.place}: {name} must be {{"start": 0, "stop": 5}}, offsets of characters')


def _check_entities(place: Place, text: str, head: Entity, tail: Entity) -> None:
    for entity in (head, tail):
        inside = 0 <= entity.start < entity.stop <= len(text)
        if not inside or not text[entity.start : entity.stop].strip():
            raise UserError(
                f"{place}: an entity from {entity.start} to {entity.stop} holds no text; "
                f"the text has {len(text)} characters"
            )
    if head.start < tail.stop and tail.start < head.stop:
        raise UserError(f"{place}: the two entities overlap; they must not")


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The ids of a text, split at its entities, which are already marked or replaced."""

    before: np.ndarray
    first: np.ndarray
    between: np.ndarray
    second: np.ndarray
    after: np.ndarray
    head_is_first: bool

    def __len__(self) -> int:
        return len(self.text)

    @property
    def text(self) -> np.ndarray:
        return np.concatenate([self.before, self.first, self.between, self.second, self.after])


def relation_rows(
    examples: Sequence[RelationExample],
    tokenizer: TaskTokenizer,
    max_length: int,
    style: EntityStyle,
    targets: Mapping[str, np.ndarray],
) -> Rows:
    """One row per example, with the entities marked or replaced as `style` says.

    A text that is too long loses tokens at its outer ends first, then in the middle between its entities.

    Args:
      targets: the result of `label_targets`, or empty for texts to predict.

    Returns:
      rows with the target `entity_positions` int32 [R, 2], the first positions of head and tail: those of
      their markers, or of the first pieces of the words that replace them.

    Raises:
      UserError: the two entities alone are too long; in style types, an entity has no type; in style markers,
        the vocabulary has neither [unused1] to [unused4] nor $ and #.
    """
    check_length(max_length)
    room = max_length - tokenizer.special.in_text
    whole = _cut_texts(examples, tokenizer, style)
    fitted = [_fit(parts, room, example) for parts, example in zip(whole, examples, strict=True)]
    input_ids = [join(tokenizer, parts.text) for parts in fitted]
    segment_ids = [np.zeros(len(ids), np.int32) for ids in input_ids]
    num_cut = sum(len(parts) > room for parts in whole)
    positions = np.array([_positions(parts) for parts in fitted], np.int32)
    return make_rows(input_ids, segment_ids, num_cut, {**targets, "entity_positions": positions})


def _cut_texts(
    examples: Sequence[RelationExample], tokenizer: TaskTokenizer, style: EntityStyle
) -> list[_Parts]:
    pieces = [piece for example in examples for piece in _cut_text(example, style)]
    ids = tokenizer.encode_words(pieces)
    marks = _markers(tokenizer) if style == "markers" else [np.zeros(0, np.int32)] * 4
    parts = []
    for number, example in enumerate(examples):
        before, first, between, second, after = ids[5 * number : 5 * number + 5]
        head_is_first = example.head.start < example.tail.start
        one, two = (marks[:2], marks[2:]) if head_is_first else (marks[2:], marks[:2])
        first = np.concatenate([one[0], first, one[1]])
        second = np.concatenate([two[0], second, two[1]])
        parts.append(_Parts(before, first, between, second, after, head_is_first))
    return parts


def _cut_text(example: RelationExample, style: EntityStyle) -> list[str]:
    """The text before, of, between and after the entities; in style types, entities are replaced."""
    text = example.text
    first, second = sorted((example.head, example.tail), key=lambda entity: entity.start)
    one, two = (
        text[entity.start : entity.stop] if style == "markers" else _type_words(example, entity)
        for entity in (first, second)
    )
    pieces = text[: first.start], one, text[first.stop : second.start], two, text[second.stop :]
    return [piece.strip() for piece in pieces]


def _type_words(example: RelationExample, entity: Entity) -> str:
    """The role and type that replace an entity, as ordinary words, so that no new pieces are needed."""
    if entity.type is None:
        raise UserError(f"{example.place}: an entity has no type; style types needs one for each")
    role = "head" if entity is example.head else "tail"
    return f"{role} {entity.type.replace('_', ' ').lower()}"


def _markers(tokenizer: TaskTokenizer) -> list[np.ndarray]:
    """Four int32 [1]: the ids before and after the head, and before and after the tail."""
    for pieces in (_UNUSED, _SIGNS):
        ids = [tokenizer.piece_id(piece) for piece in pieces]
        if None not in ids:
            return [np.array([index], np.int32) for index in ids]
    raise UserError(
        f"the model's vocabulary has neither {_UNUSED[0]} to {_UNUSED[3]} nor $ and #, so entities can't be "
        f"marked; entities of style types need no such piece, but a type each"
    )


def _fit(parts: _Parts, room: int, example: RelationExample) -> _Parts:
    """`parts` shortened to at most `room` tokens."""
    entities = len(parts.first) + len(parts.second)
    if entities > room:
        raise UserError(f"{example.place}: its entities have {entities} tokens; max_seq_length leaves {room}")
    middle = min(len(parts.between), room - entities)
    after, before = truncated_lengths(len(parts.after), len(parts.before), room - entities - middle)
    return dataclasses.replace(
        parts,
        before=parts.before[len(parts.before) - before :],
        between=np.concatenate(
            [parts.between[: middle - middle // 2], parts.between[len(parts.between) - middle // 2 :]]
        ),
        after=parts.after[:after],
    )


def _positions(parts: _Parts) -> tuple[int, int]:
    """First positions of head and tail in the row, which begins with [CLS]."""
    first = 1 + len(parts.before)
    second = first + len(parts.first) + len(parts.between)
    return (first, second) if parts.head_is_first else (second, first)


def semeval_f1(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> float:
    """Mean F1 over relations other than Other (SemEval-2010 Task 8).

    A relation in the wrong direction is wrong, but its two directions share one F1, as in the task's own
    scorer.
    """
    from sklearn.metrics import f1_score

    scores = [
        f1_score(targets, predictions, labels=numbers, average="micro", zero_division=0)
        for numbers in _directions(labels)
    ]
    return float(np.mean(scores))


def semeval_counts(targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """int32 [N, K, 3]: what `semeval_f1` is the mean F1 of, for each relation but Other.

    Whether it is found in the right direction, is predicted, and is there, each 0 or 1.
    """
    counts = []
    for numbers in _directions(labels):
        predicted, true = np.isin(predictions, numbers), np.isin(targets, numbers)
        counts.append(np.stack([true & (targets == predictions), predicted, true], axis=-1))
    return np.stack(counts, axis=1).astype(np.int32)


def _directions(labels: Sequence[str]) -> list[list[int]]:
    """For each relation but Other, the numbers of its labels, such as those of its two directions."""
    directions: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        if label != _OTHER:
            directions.setdefault(label.partition("(")[0], []).append(number)
    return list(directions.values())
