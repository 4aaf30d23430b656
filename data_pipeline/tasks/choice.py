"""Multiple choice: a context and several ways to go on or answer, one of which is right."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.encode import TaskTokenizer, encode_pairs, make_rows
from data_pipeline.tasks.records import Place, Record, read_records, split_tabs
from data_pipeline.tasks.rows import Rows

_SWAG_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_CODAH_COLUMNS = 7
_FEWEST_CHOICES = 2


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A sequence [CLS] context [SEP] choice [SEP] for each choice."""

    place: Place
    context: str
    choices: tuple[str, ...]
    """Two or more, each with what stands before it: SWAG's start of the sentence, a question."""
    label: int | None
    """The index of the right one; None in examples to predict."""


def read_swag(file: Path) -> list[ChoiceExample]:
    """SWAG's CSV: sent1 is the context, sent2 and an ending are a choice (section 4.4 of the BERT paper).

    Raises UserError as `read_records`, and if a label is no index of an ending.
    """
    return [
        ChoiceExample(
            place=record.place,
            context=record.text("sent1"),
            choices=tuple(f"{record.fields['sent2']} {record.text(name)}".strip() for name in _SWAG_ENDINGS),
            label=_index(record.place, record.fields["label"], 4) if "label" in record.fields else None,
        )
        for record in read_records(file, ("sent1", "sent2", *_SWAG_ENDINGS))
    ]


def read_codah(file: Path) -> list[ChoiceExample]:
    """CODAH's TSV without a line of names: category, prompt, four completions, index of the right one.

    Raises UserError: no such file, not UTF-8, empty, a line of another form, an index that is none.
    """
    examples = []
    for place, values in split_tabs(file):
        if len(values) != _CODAH_COLUMNS:
            raise UserError(f"{place} has {len(values)} columns instead of CODAH's {_CODAH_COLUMNS}")
        _, prompt, *choices, label = values
        if not all(text.strip() for text in (prompt, *choices)):
            raise UserError(f"{place} has an empty prompt or completion")
        examples.append(ChoiceExample(place, prompt, tuple(choices), _index(place, label, len(choices))))
    return examples


def read_choices(file: Path) -> list[ChoiceExample]:
    """JSONL of {"context", "choices": [two or more], "question" and "label" where there are such}.

    The number of choices may differ from line to line. A choice is encoded after its question. Raises
    UserError as `read_records`, and if a label is no index of a choice.
    """
    return [_read_choice(record) for record in read_records(file, ("context", "choices"))]


def choice_rows(examples: Sequence[ChoiceExample], tokenizer: TaskTokenizer, max_length: int) -> Rows:
    """A row an example, as many sequences as the most choices; one that an example lacks is empty.

    Returns:
      rows with `labels` int32 [R], or without targets if no example has a label.

    Raises:
      UserError: an example has no label while others have.
    """
    width = max(len(example.choices) for example in examples)
    contexts = [example.context for example in examples for _ in example.choices]
    choices = [choice for example in examples for choice in example.choices]
    sequences = encode_pairs(tokenizer, contexts, choices, max_length)
    present = np.array([place < len(example.choices) for example in examples for place in range(width)])
    return make_rows(sequences.spread(present), choice_labels(examples), sequences_per_row=width)


def choice_labels(examples: Sequence[ChoiceExample]) -> dict[str, np.ndarray]:
    """`labels` int32 [R], or nothing if no example has one. Raises UserError if some have."""
    labels = [example.label for example in examples if example.label is not None]
    if not labels:
        return {}
    for example in examples:
        if example.label is None:
            raise UserError(f"{example.place} has no label, though other examples have one")
    return {"labels": np.array(labels, np.int32)}


def _read_choice(record: Record) -> ChoiceExample:
    choices = record.texts("choices", _FEWEST_CHOICES)
    if "question" in record.fields:
        choices = tuple(f"{record.text('question')} {choice}" for choice in choices)
    label = record.fields.get("label")
    return ChoiceExample(
        place=record.place,
        context=record.text("context"),
        choices=choices,
        label=None if label is None else _index(record.place, label, len(choices)),
    )


def _index(place: Place, value: str | int, count: int) -> int:
    if str(value).strip() not in {str(index) for index in range(count)}:
        raise UserError(f"{place} has the label {value!r}; it must be from 0 to {count - 1}")
    return int(value)
