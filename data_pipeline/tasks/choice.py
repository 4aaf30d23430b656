"""Multiple choice: a context and several continuations or answers, one of which is right."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, encode_pairs, make_rows
from data_pipeline.tasks.finetuning.folds import FoldFlags
from data_pipeline.tasks.finetuning.labels import all_or_none
from data_pipeline.tasks.finetuning.records import Place, Record, read_records, split_tabs
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.splits import table_files

CHOICE_FIELDS = ("context", "choices")
"""Required fields of a JSON object."""
_SWAG_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_SWAG_COLUMNS = ("sent1", "sent2", *_SWAG_ENDINGS)
_CODAH_ENDINGS = ("completion0", "completion1", "completion2", "completion3")
_LABEL = "label"
_CODAH_COLUMNS = ("category", "prompt", *_CODAH_ENDINGS, _LABEL)
_FEWEST_CHOICES = 2


@dataclasses.dataclass(frozen=True)
class Flags(FoldFlags):
    """A directory with train, dev (or val) and optionally test: SWAG's .csv, CODAH's .tsv, or .jsonl with
    {"context", "question", "choices", "label"} per line, where "question" is optional. Or a directory with a
    single file for cross-validation: CODAH's full_data.tsv, or all.csv, all.tsv or all.jsonl."""

    max_seq_length: int = 128
    """Maximum length of one choice with its context, in tokens; longer ones are truncated."""
    encoding: str = "utf-8"
    """Encoding of the files, such as latin-1."""
    files_only: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """One question, encoded as a sequence [CLS] context [SEP] choice [SEP] for each choice."""

    place: Place
    context: str
    choices: tuple[str, ...]
    """Two or more, each including what precedes it: the start of the sentence in SWAG, or the question."""
    label: int | None
    """Index of the right choice; None in examples to predict."""


def open_choices(
    file: Path, encoding: str = "utf-8"
) -> tuple[Callable[[], Iterator[Record]], Callable[[Record], ChoiceExample]]:
    """How to read a file, decided by its suffix: SWAG's .csv, CODAH's .tsv, or JSONL.

    - SWAG: sent1 is the context; sent2 followed by an ending is a choice (section 4.4 of the BERT paper).
    - CODAH: no header; category, prompt, four completions, and the index of the right one, which may be
      missing in files to predict.
    - JSONL: {"context", "choices": [two or more]}, optionally with "question" and "label". The number of
      choices may differ from line to line; the question is put before each choice.

    Returns:
      a function that returns an iterator over the file's records, and one that returns a record's example.

    Raises:
      UserError: as `read_records`; a line of another form; a label that is no index of a choice. Most are
        raised only when the records are read.
    """
    match file.suffix:
        case ".csv":
            return partial(read_records, file, _SWAG_COLUMNS, encoding), _swag_example
        case ".tsv":
            return partial(_codah_records, file, encoding), _codah_example
    return partial(read_records, file, CHOICE_FIELDS, encoding), json_example


def read_choices(file: Path, encoding: str = "utf-8") -> list[ChoiceExample]:
    """All examples of a file in one of the forms of `open_choices`, or of a directory of such files."""
    opened = (open_choices(part, encoding) for part in (table_files(file) if file.is_dir() else [file]))
    return [example(record) for read, example in opened for record in read()]


def choice_rows(examples: Sequence[ChoiceExample], tokenizer: TaskTokenizer, max_length: int) -> Rows:
    """One row per example, each with as many sequences as the largest number of choices.

    A choice that an example lacks is an empty sequence.

    Returns:
      rows with `labels` int32 [R], or without targets if no example has a label.

    Raises:
      UserError: an example has no label while others have.
    """
    width = max(len(example.choices) for example in examples)
    contexts = [example.context for example in examples for _ in example.choices]
    choices = [choice for example in examples for choice in example.choices]
    encoded = encode_pairs(tokenizer, contexts, choices, max_length)
    present = np.array([place < len(example.choices) for example in examples for place in range(width)])
    targets = {}
    if all_or_none((example.place, example.label is not None) for example in examples):
        targets["labels"] = np.array([example.label for example in examples], np.int32)
    tokens = {name: _spread(sequences, present) for name, sequences in encoded.tokens.items()}
    return make_rows(**tokens, num_cut=encoded.num_cut, targets=targets, sequences_per_row=width)


def json_example(record: Record) -> ChoiceExample:
    """The example of one JSON object, in the form that `open_choices` describes."""
    choices = record.texts("choices", _FEWEST_CHOICES)
    if not record.is_blank("question"):
        choices = tuple(f"{record.text('question')} {choice}" for choice in choices)
    return ChoiceExample(
        place=record.place,
        context=record.text("context"),
        choices=choices,
        label=_label(record, len(choices)),
    )


def _swag_example(record: Record) -> ChoiceExample:
    return ChoiceExample(
        place=record.place,
        context=record.text("sent1"),
        choices=tuple(f"{record.fields['sent2']} {record.text(name)}".strip() for name in _SWAG_ENDINGS),
        label=_label(record, len(_SWAG_ENDINGS)),
    )


def _codah_records(file: Path, encoding: str) -> Iterator[Record]:
    whole = len(_CODAH_COLUMNS)
    for place, values in split_tabs(file, encoding):
        if len(values) not in (whole, whole - 1):
            raise UserError(
                f"{place} has {len(values)} columns instead of CODAH's {whole}, or {whole - 1} without label"
            )
        yield Record(place, dict(zip(_CODAH_COLUMNS, values, strict=False)))


def _codah_example(record: Record) -> ChoiceExample:
    return ChoiceExample(
        place=record.place,
        context=record.text("prompt"),
        choices=tuple(record.text(name) for name in _CODAH_ENDINGS),
        label=_label(record, len(_CODAH_ENDINGS)),
    )


def _spread(sequences: Sequence[np.ndarray], present: np.ndarray) -> list[np.ndarray]:
    """The sequences at the places where bool `present` is True, and empty ones where it is False."""
    given = iter(sequences)
    return [next(given) if is_present else np.zeros(0, np.int32) for is_present in present]


def _label(record: Record, count: int) -> int | None:
    """Index of the right choice; None if the label is missing, or -1 as some test sets write it."""
    label = record.label(_LABEL)
    if label is None or label == "-1":
        return None
    if label not in map(str, range(count)):
        raise UserError(
            f"{record.place} has the label {record.fields[_LABEL]!r}; it must be from 0 to {count - 1}"
        )
    return int(label)
