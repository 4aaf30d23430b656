"""Examples of relation classification: a text, two entities in it, and the relation of head to tail."""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from data_pipeline.errors import UserError
from data_pipeline.tasks.records import Place, Record, check_unicode, read_lines, read_records

RELATION_FIELDS = ("text", "head", "tail")
PlacedLines: TypeAlias = list[tuple[Place, str]]

_NUMBERED = re.compile(r'\d+\t"?(.*?)"?\s*')
_TAG = re.compile(r"(</?e[12]>)")
_TAG_ORDERS = (["<e1>", "</e1>", "<e2>", "</e2>"], ["<e2>", "</e2>", "<e1>", "</e1>"])
_COMMENT = "Comment"


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


def read_semeval(file: Path) -> list[RelationExample]:
    """The examples of a file in the form of SemEval-2010 Task 8.

    Head is e1, tail is e2, and labels are words such as Cause-Effect(e2,e1). An example is a numbered line
    with a sentence in quotes that has <e1></e1> and <e2></e2>; then, except in the test file, a line with its
    relation; then optionally a line that begins with Comment. Blank lines are ignored.

    Raises:
      UserError: no such file, not UTF-8, empty, an example without both entities, or a line of none of these
        kinds.
    """
    return [parse_semeval(lines) for lines in split_semeval(file)]


def read_relations(file: Path) -> list[RelationExample]:
    """Examples from JSONL: {"text", "head": {"start", "stop"}, "tail": {"start", "stop"}}, and maybe "label".

    Offsets count characters; `stop` is exclusive. An entity may have a "type". Raises UserError as
    `read_records`, and if an entity is empty, outside the text or overlaps with the other one.
    """
    return [parse_relation(record) for record in read_records(file, RELATION_FIELDS)]


def split_semeval(file: Path) -> Iterator[PlacedLines]:
    """The lines of each example, without blank ones."""
    example: PlacedLines = []
    for place, line in read_lines(file):
        if _NUMBERED.fullmatch(line) and example:
            yield example
            example = []
        if line.strip():
            example.append((place, line))
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
        case {"start": int(start), "stop": int(stop), "type": str(type_)}:
            check_unicode(record.place, f"the type of {name}", type_)
            return Entity(start, stop, type_)
        case {"start": int(start), "stop": int(stop)}:
            return Entity(start, stop)
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
        raise UserError(f"{place}: the two entities overlap; they must lie apart")
