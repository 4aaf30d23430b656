"""Reads records from a user's files (TSV, CSV and JSON lines), each with its place for messages."""

import codecs
import collections
import csv
import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import parse_object
from data_pipeline.tasks.finetuning.splits import JSON_LINES, TABLES, table_files
from data_pipeline.tfds import TfdsSplit

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can escape them, UTF-8 cannot encode them


@dataclasses.dataclass(frozen=True)
class Place:
    """Where something was read, for messages."""

    source: str
    line: int
    unit: str = "line"
    """What `line` counts."""

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.line}"


@dataclasses.dataclass(frozen=True)
class Record:
    """One row of a table, or one object of a JSONL file."""

    place: Place
    fields: Mapping[str, Any]

    def text(self, name: str) -> str:
        """A field that must hold text. Raises UserError if it is blank or not text."""
        value = self.fields[name]
        if not isinstance(value, str):
            raise UserError(
                f"{self.place}: {name} is {json.dumps(value, default=repr)[:40]}; it must be text"
            )
        return self._check_text(name, value)

    def word(self, name: str) -> str:
        """A field as a label: text, or a number or boolean as JSON writes it. Raises UserError if blank."""
        value = self.fields[name]
        word = value.strip() if isinstance(value, str) else json.dumps(value)
        if not word or isinstance(value, list | dict | None):
            raise UserError(f"{self.place} has no {name}; it must be a word or a number")
        return self._check_text(name, word)

    def label(self, name: str) -> str | None:
        """A field as `word` returns it; None if it is blank, as in test sets without labels."""
        return None if self.is_blank(name) else self.word(name)

    def is_blank(self, name: str) -> bool:
        """Whether a field is missing, null or blank text."""
        value = self.fields.get(name)
        return value is None or (isinstance(value, str) and not value.strip())

    def texts(self, name: str, fewest: int) -> tuple[str, ...]:
        """A field that must be a list of at least `fewest` texts. Raises UserError if it is not."""
        values = self.fields[name]
        if not isinstance(values, list | tuple) or len(values) < fewest:
            raise UserError(f"{self.place}: {name} must be a list of {fewest} or more texts")
        if not all(isinstance(value, str) for value in values):
            raise UserError(f"{self.place}: {name} must be a list of texts")
        return tuple(self._check_text(name, value) for value in values)

    def without(self, name: str) -> "Record":
        """The same record without a field, such as a label that is to be ignored."""
        return Record(self.place, {key: value for key, value in self.fields.items() if key != name})

    def _check_text(self, name: str, value: str) -> str:
        if not value.strip():
            raise UserError(f"{self.place}: {name} is empty; it must be text")
        check_unicode(self.place, name, value)
        return value


def read_records(file: Path | TfdsSplit, columns: Sequence[str], encoding: str = "utf-8") -> Iterator[Record]:
    """The records of a .tsv, .csv or .jsonl file, a directory of them, or a TensorFlow dataset.

    All have the fields `columns`. A TSV has a header and no quoting: a quotation mark is an ordinary
    character. A CSV has a header, and quotes as spreadsheets write them. Where `columns` are numbers, from 0,
    a table has no header, unless its first line is just 0, 1, 2 and so on. JSONL has one object per line.

    Raises:
      UserError: no such file; not in the encoding; empty; a column is missing; a line that differs from the
        first in its number of columns, or is no JSON object.
    """
    if isinstance(file, TfdsSplit):
        return _read_tfds(file, columns)
    if file.is_dir() and file.suffix not in TABLES:
        return itertools.chain.from_iterable(
            read_records(one, columns, encoding) for one in table_files(file)
        )
    if file.suffix in _SPLITTERS:
        records = _name_fields(file, _SPLITTERS[file.suffix](file, encoding), columns)
    elif file.suffix in JSON_LINES:
        records = _read_jsonl(file, columns, encoding)
    else:
        raise UserError(f"{file} has no known form; its name must end in .tsv, .csv or .jsonl")
    return not_empty(file, records)


def check_unicode(place: object, name: str, text: str) -> None:
    """Raises UserError if a text has an unpaired surrogate, which is half a character."""
    if _SURROGATE.search(text):
        raise UserError(f"{place}: {name} has half a character, such as \\ud83d; it must be Unicode")


def example_place(index: int) -> Place:
    """The place, for messages, of an example in memory."""
    return Place("the examples", index, "index")


def as_records(examples: Sequence[Any], columns: Sequence[str]) -> list[Record]:
    """Dicts in memory as records, as if each were a line of a JSONL file.

    Raises UserError naming the index of the first that is no mapping or lacks one of `columns`.
    """
    records = []
    for index, fields in enumerate(examples):
        place = example_place(index)
        if not isinstance(fields, Mapping):
            raise UserError(f"{place}: {fields!r:.40} is no dict of {', '.join(columns)}")
        check_columns(place, fields, columns)
        records.append(Record(place, fields))
    return records


def read_lines(file: Path, encoding: str = "utf-8") -> Iterator[tuple[Place, str]]:
    """The lines of a file, without their line ends; blank lines at the end of the file are left out.

    Only a line feed ends a line, since texts hold characters such as U+2028 that `str.splitlines` splits at.
    A carriage return before it is part of the line end.

    Raises UserError: no such file, not in the encoding, or empty.
    """
    return ((place, line.removesuffix("\r")) for place, line in _fed_lines(file, encoding))


def _fed_lines(file: Path, encoding: str) -> Iterator[tuple[Place, str]]:
    """As `read_lines`, but carriage returns at the ends of lines are kept."""
    blank: list[tuple[Place, str]] = []
    is_empty = True
    for place, line in _decode(file, encoding):
        if line.removesuffix("\r").strip(" "):
            yield from blank
            blank.clear()
            yield place, line
            is_empty = False
        else:
            blank.append((place, line))
    if is_empty:
        raise UserError(f"{file} is empty")


def split_tabs(file: Path, encoding: str = "utf-8") -> Iterator[tuple[Place, list[str]]]:
    """The lines of a TSV, split at tabs."""
    return ((place, line.split("\t")) for place, line in read_lines(file, encoding))


def check_encoding(encoding: str) -> None:
    """Raises UserError if Python knows no such encoding."""
    try:
        "\n".encode(encoding)
    except (LookupError, UnicodeError):
        raise UserError(f"encoding {encoding!r} is unknown; utf-8 and latin-1 are usual") from None


def check_columns(source: object, names: Iterable[str], needed: Sequence[str]) -> None:
    """Raises UserError naming the first of `needed` that `names` lacks."""
    for name in needed:
        if name not in names:
            raise UserError(f"{source} has no column {name}; it has {', '.join(map(str, names)) or 'none'}")


def check_names(source: object, names: Iterable[str]) -> None:
    """Raises UserError if two columns have the same name."""
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise UserError(f"{source} has two columns named {name!r}; give each a name of its own")


def _decode(file: Path, encoding: str) -> Iterator[tuple[Place, str]]:
    check_encoding(encoding)
    if "\n".encode(encoding).removeprefix(codecs.BOM_UTF8) != b"\n":
        raise UserError(f"{file}: the lines of {encoding} cannot be told apart; convert it to UTF-8")
    try:
        with file.open("rb") as raw:
            for number, line in enumerate(raw, start=1):
                text = line.decode(encoding)
                text = text.removeprefix("\ufeff") if number == 1 else text
                yield Place(str(file), number), text.removesuffix("\n")
    except UnicodeDecodeError:
        raise UserError(
            f"{Place(str(file), number)} is not {encoding.upper()}; convert it to UTF-8, or, if the task has "
            "--encoding, give it"
        ) from None
    except OSError as error:
        raise bad_input(error, file, f"{file} cannot be read: {error.strerror}") from None


def _name_fields(
    file: Path, lines: Iterator[tuple[Place, list[str]]], columns: Sequence[str]
) -> Iterator[Record]:
    """Records of the lines below a header; of all lines if `columns` are numbers, and the first line does not
    name its columns by their numbers, as pandas writes them."""
    first = next(lines)
    names, numbers = first[1], [str(number) for number in range(len(first[1]))]
    if not any(names):
        raise UserError(f"{first[0]} is blank; the first line names the columns, or is an example")
    are_numbers = bool(columns) and all(column.isascii() and column.isdigit() for column in columns)
    if are_numbers and names != numbers:
        names, lines = numbers, itertools.chain([first], lines)
        check_columns(file, names, columns)
    elif missing := [column for column in columns if column not in names]:
        raise UserError(
            f"{file} has no column {missing[0]}; it has {', '.join(names)} (a table without a line of names "
            "takes numbers of columns, from 0)"
        )
    check_names(file, names)
    for place, values in lines:
        if not any(values) and len(names) > 1:
            raise UserError(f"{place} is blank; delete it")
        if len(values) != len(names):
            raise UserError(f"{place} has {len(values)} columns; the first line names {len(names)}")
        yield Record(place, dict(zip(names, values, strict=True)))


def _split_csv(file: Path, encoding: str) -> Iterator[tuple[Place, list[str]]]:
    csv.field_size_limit(sys.maxsize)  # a text may well be longer than the module's 128 KiB
    # Carriage returns are kept: in a cell of several lines they are text.
    reader = csv.reader((f"{line}\n" for _, line in _fed_lines(file, encoding)), strict=True)
    while True:
        place = Place(str(file), reader.line_num + 1)
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error).partition(" - ")[0]  # what follows is advice to programmers
            raise UserError(f"{place} is not CSV: {reason}") from None
        yield place, values


_SPLITTERS = {".tsv": split_tabs, ".csv": _split_csv}


def _read_jsonl(file: Path, columns: Sequence[str], encoding: str) -> Iterator[Record]:
    for place, line in read_lines(file, encoding):
        fields = parse_object(line, place)
        check_columns(place, fields, columns)
        yield Record(place, fields)


def _read_tfds(split: TfdsSplit, columns: Sequence[str]) -> Iterator[Record]:
    check_columns(split, split.names, columns)
    for number, fields in enumerate(split.records(), start=1):
        yield Record(Place(str(split), number, "example"), fields)


def not_empty(file: Path, records: Iterator[Record]) -> Iterator[Record]:
    """Yields a file's records. Raises UserError if there are none."""
    first = next(records, None)
    if first is None:
        raise UserError(f"{file} has no example below its first line")
    yield first
    yield from records


def changed_meanwhile(place: object, what: str) -> UserError:
    """The exception for a file that is read twice, and has other rows or words the second time."""
    return UserError(
        f"{place} has other {what} than when it was first read; leave the file as it is until the command "
        "ends, and run it again"
    )
