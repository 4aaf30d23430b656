"""Encodes relation examples as rows, with the two entities marked or replaced by their types."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.encode import EncodedTexts, TaskTokenizer, check_length, make_rows
from data_pipeline.tasks.names import EntityStyle
from data_pipeline.tasks.relation import Entity, RelationExample
from data_pipeline.tasks.rows import Rows
from data_pipeline.truncation import truncated_lengths

_UNUSED = ("[unused1]", "[unused2]", "[unused3]", "[unused4]")
_SIGNS = ("$", "$", "#", "#")


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
        return sum(map(len, (self.before, self.first, self.between, self.second, self.after)))


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
    room = max_length - 2
    whole = _cut_texts(examples, tokenizer, style)
    fitted = [_fit(parts, room, example) for parts, example in zip(whole, examples, strict=True)]
    input_ids = [_join(parts, tokenizer) for parts in fitted]
    sequences = EncodedTexts(
        input_ids,
        [np.zeros(len(ids), np.int32) for ids in input_ids],
        sum(len(parts) > room for parts in whole),
    )
    positions = np.array([_positions(parts) for parts in fitted], np.int32)
    return make_rows(sequences, {**targets, "entity_positions": positions})


def _cut_texts(
    examples: Sequence[RelationExample], tokenizer: TaskTokenizer, style: EntityStyle
) -> list[_Parts]:
    pieces = [piece for example in examples for piece in _cut_text(example, style)]
    ids = tokenizer.encode(pieces)
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


def _cut_text(example: RelationExample, style: EntityStyle) -> tuple[str, str, str, str, str]:
    """The text before, of, between and after the entities; in style types, entities are replaced."""
    text = example.text
    first, second = sorted((example.head, example.tail), key=lambda entity: entity.start)
    words = [
        text[entity.start : entity.stop] if style == "markers" else _type_words(example, entity)
        for entity in (first, second)
    ]
    outside = text[: first.start], text[first.stop : second.start], text[second.stop :]
    before, between, after = (part.strip() for part in outside)
    return before, words[0].strip(), between, words[1].strip(), after


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
            [
                parts.between[: middle - middle // 2],
                parts.between[len(parts.between) - middle // 2 :],
            ]
        ),
        after=parts.after[:after],
    )


def _join(parts: _Parts, tokenizer: TaskTokenizer) -> np.ndarray:
    """int32: [CLS], the text, [SEP]."""
    cls, sep = np.array([[tokenizer.cls_id], [tokenizer.sep_id]], np.int32)
    return np.concatenate([cls, parts.before, parts.first, parts.between, parts.second, parts.after, sep])


def _positions(parts: _Parts) -> tuple[int, int]:
    """First positions of head and tail in the row, which begins with [CLS]."""
    first = 1 + len(parts.before)
    second = first + len(parts.first) + len(parts.between)
    return (first, second) if parts.head_is_first else (second, first)
