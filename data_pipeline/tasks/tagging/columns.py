"""Files of tagged words, as in CoNLL-2002 and -2003: one word per line, blank lines between sentences.

The comments of CoNLL-U, as Universal NER has them, are left alone; `# newdoc` begins a document.

Tags of every scheme are converted to IOB2, so that later code need not know the file's scheme; predictions
are written in that scheme again.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError, bad_input
from data_pipeline.tasks.finetuning.records import (
    changed_meanwhile,
    check_columns,
    check_encoding,
    check_names,
)
from data_pipeline.tasks.finetuning.splits import JSON_LINES
from data_pipeline.tfds import TfdsSplit

Scheme = Literal["iob1", "iob2", "iobes", "none"]
"""How tags mark where an entity begins and ends; none: tags of single words, such as parts of speech."""

DOCUMENT_START = "-DOCSTART-"
PREDICTED_COLUMN = "predicted"

_PREFIXES: dict[Scheme, tuple[str, ...]] = {
    "iob1": ("B", "I"),
    "iob2": ("B", "I"),
    "iobes": ("B", "I", "E", "S"),
}
_COMMENT = re.compile(r"# (newdoc|newpar|\S+ =)( .*)?|# id \S+\s+domain=\S+")
"""Those of CoNLL-U, and of MultiCoNER. Other lines that begin with # are words."""
_NO_WORD_OF_CONLLU = re.compile(r"#|\d+[-.]\d+\t")
"""A comment; a token of several words, as 3-4; a word that was left out, as 5.1."""
_NEW_DOCUMENT = "# newdoc"
_BLANKS = " \t\r\n"  # Others, such as U+00A0, can be words.
_TFDS_COLUMNS = ("tokens", "pos", "chunks", "ner")  # CoNLL-2003's, in its order


@dataclasses.dataclass(frozen=True)
class Columns:
    """The layout of a file. Columns are separated by a tab, or by blanks in lines without a tab."""

    word: int | str = 0
    """Number of the words' column, from 0; or its name, if there is a header."""
    tag: int | str | None = -1
    """Number of the tags' column, from 0 or backwards from -1; or its name; None to read words alone."""
    scheme: Scheme = "iob2"
    """iob1: B- only where an entity directly follows another of its type, as in the original CoNLL-2003.
    iob2: B- begins every entity. iobes: also E- for its last word, and S- for an only one. none: any tags."""
    encoding: str = "utf-8-sig"
    """UTF-8 with or without a byte order mark. CoNLL-2002 is in latin-1."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if isinstance(self.word, int) and self.word < 0:
            raise UserError(
                f"--word-column is {self.word}; count from 0, since a file without tags has fewer columns"
            )


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The words of a sentence, their tags, and where it stands in its file."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """One tag per word, in IOB2 or of scheme none; empty if tags were not read."""
    document: int | None
    """Number of the document it belongs to; None if the file marks none."""
    file: str = dataclasses.field(default="", compare=False)
    lines: tuple[int, ...] = dataclasses.field(default=(), compare=False)
    """The number of each word's line in the file."""

    def place(self, word: int) -> str:
        """The file and line of a word, for messages."""
        return f"{self.file}:{self.lines[word]}"


def read_columns(path: Path | TfdsSplit, columns: Columns) -> tuple[Sentence, ...]:
    """All sentences of a file, as `iterate_columns`."""
    return tuple(iterate_columns(path, columns))


def iterate_columns(path: Path | TfdsSplit, columns: Columns) -> Iterator[Sentence]:
    """The sentences of a file, one after the other.

    Raises:
      UserError: the file can't be read or has no words; a line differs in its number of columns from those
        before it, or has a tag that does not fit the scheme.
    """
    has_documents = any(line.kind == "document" for line in _read_lines(path, columns))
    lines = (line for line in _read_lines(path, columns) if line.kind != "comment")
    document = 0
    is_empty = True
    for kind, group in itertools.groupby(lines, key=lambda line: line.kind):
        if kind == "document":
            document += 1
        elif kind == "word":
            fields = ((line.word, line.tag, line.number, line.place) for line in group)
            words, found, numbers, places = zip(*fields, strict=True)
            tags = () if columns.tag is None else convert_tags(found, columns.scheme, places)
            is_empty = False
            yield Sentence(words, tags, document if has_documents else None, str(path), numbers)
    if is_empty:
        raise UserError(f"{path} has no words")


def check_writable(path: Path | TfdsSplit, columns: Columns) -> None:
    """Raises UserError if the file has a column of the name that predictions get."""
    check_names(path, [*_first_fields(path, columns, "names"), PREDICTED_COLUMN])


def has_tags(path: Path | TfdsSplit, columns: Columns, train: Path | TfdsSplit) -> bool:
    """Whether the first word of a test set has a tag in the column where the training set has its tags."""
    place, words = columns.tag, dataclasses.replace(columns, tag=None)
    fields = _first_fields(path, words, "word")
    if isinstance(place, str):
        names = _first_fields(path, columns, "names")
        place = names.index(place) if place in names else None
    elif place is not None:
        place %= len(_first_fields(train, words, "word"))
    return place is not None and place < len(fields) and fields[place] != ""


def write_columns(
    source: Path | TfdsSplit,
    output: Path,
    columns: Columns,
    tagged: Iterable[tuple[Sentence, Sequence[str]]],
) -> None:
    """Writes the lines of `source` with the tags as one more column at the end.

    Tags are converted to the scheme of `columns` (`tags_in_scheme`). Line ends are those of the first line of
    `source`. `tagged` is consumed as the lines are written, so neither file is ever held whole.

    Args:
      tagged: the sentences of `source` and their tags.

    Raises:
      UserError: the words of `source` differ from those of the sentences; it was changed meanwhile. The
        encoding lacks a character of a tag.
    """
    encoding = columns.encoding.removesuffix("-sig")
    end = _line_end(source, columns)
    try:
        with atomically(output) as partial, partial.open("w", encoding=encoding, newline=end) as file:
            file.writelines(_tagged_lines(source, columns, tagged))
    except UnicodeEncodeError as error:
        lacking = error.object[error.start]
        raise UserError(f"{encoding} cannot write {lacking!r} of a tag; convert {source} to UTF-8") from None


def convert_tags(tags: Sequence[str], scheme: Scheme, places: Sequence[str]) -> tuple[str, ...]:
    """The tags of a sentence in IOB2; tags of scheme none unchanged.

    Raises UserError with the place of a tag that does not fit.
    """
    if scheme == "none":
        return tuple(tags)
    converted: list[str] = []
    open_type = None  # of the entity that the next word may belong to
    for tag, place in zip(tags, places, strict=True):
        prefix, kind = _split_tag(tag, scheme, place)
        continues = prefix in ("I", "E") and kind == open_type
        fits = {
            "iob1": prefix != "B" or kind == open_type,
            "iob2": prefix != "I" or continues,
            "iobes": continues if prefix in ("I", "E") else open_type is None,
        }
        if not fits[scheme]:
            before = tags[len(converted) - 1] if converted else "the start of a sentence"
            others = " or ".join(f"--scheme {other}" for other in _PREFIXES if other != scheme)
            raise UserError(f"{place}: {tag} can't follow {before} in {scheme}; give {others} if it is that")
        converted.append("O" if prefix == "O" else f"{'I' if continues else 'B'}-{kind}")
        open_type = kind if prefix in ("B", "I") else None
    if scheme == "iobes" and open_type is not None:
        raise UserError(f"{places[-1]}: the sentence ends in {tags[-1]}, which iobes would write E- or S-")
    return tuple(converted)


def tags_in_scheme(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The tags of a sentence, given as `convert_tags` returns them, in a scheme.

    A model may predict an I- that follows no word of its type; it begins an entity, as the metric counts it.
    """
    if scheme == "none":
        return list(tags)
    written = []
    for before, tag, after in zip(("O", *tags), tags, (*tags[1:], "O"), strict=False):
        kind = tag[2:]
        is_next_to_its_kind = before != "O" and before[2:] == kind
        begins = tag.startswith("B") or not is_next_to_its_kind
        ends = after != f"I-{kind}"
        letter = {
            "iob1": "B" if begins and is_next_to_its_kind else "I",
            "iob2": "B" if begins else "I",
            "iobes": ("S" if ends else "B") if begins else ("E" if ends else "I"),
        }[scheme]
        written.append(tag if tag == "O" else f"{letter}-{kind}")
    return written


def _tagged_lines(
    source: Path | TfdsSplit, columns: Columns, tagged: Iterable[tuple[Sentence, Sequence[str]]]
) -> Iterator[str]:
    of_words = itertools.chain.from_iterable(
        zip(sentence.words, tags_in_scheme(tags, columns.scheme), strict=True) for sentence, tags in tagged
    )
    for line in _read_lines(source, columns):
        if line.kind == "word":
            word, tag = next(of_words, ("", ""))
            if word != line.word:
                raise changed_meanwhile(line.place, "words")
            yield line.with_column(tag)
        elif line.kind == "names":
            check_names(line.place, [*_split(line.text), PREDICTED_COLUMN])
            yield line.with_column(PREDICTED_COLUMN)
        elif line.text.startswith(DOCUMENT_START):
            yield line.with_column("O")
        else:
            yield f"{line.text}\n"
    if next(of_words, None):
        raise changed_meanwhile(source, "words")


def _line_end(path: Path | TfdsSplit, columns: Columns) -> str:
    """The line end of a file's first line."""
    if isinstance(path, TfdsSplit):
        return "\n"
    with _reading(path, columns.encoding), path.open(encoding=columns.encoding, newline="") as file:
        return "\r\n" if file.readline().endswith("\r\n") else "\n"


def _first_fields(path: Path | TfdsSplit, columns: Columns, kind: Literal["names", "word"]) -> list[str]:
    """The fields of the first line of a kind; empty if there is no such line."""
    lines = _read_lines(path, columns)
    return _split(next((line.text for line in lines if line.kind == kind), ""))


def _split(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else [field for field in text.split(" ") if field]


def _split_tag(tag: str, scheme: Scheme, place: str) -> tuple[str, str]:
    prefix, _, kind = tag.partition("-")
    if tag != "O" and not (kind and prefix in _PREFIXES[scheme]):
        valid = ", ".join(f"{letter}-TYPE" for letter in _PREFIXES[scheme])
        if kind and prefix in ("U", "L"):
            advice = "BILOU's U- and L- are S- and E- in iobes: rename them, and give --scheme iobes"
        else:
            advice = (
                "for tags of single words, such as parts of speech, give --scheme none; if the tags are in "
                "another column, --tag-column"
            )
        raise UserError(f"{place}: {tag!r} is not a tag of {scheme}, which has O, {valid}; {advice}")
    return prefix, kind


@dataclasses.dataclass(frozen=True)
class _Line:
    kind: Literal["names", "document", "comment", "blank", "word"]
    text: str
    file: Path | TfdsSplit
    number: int
    word: str = ""
    tag: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"

    def with_column(self, value: str) -> str:
        return self.text + ("\t" if "\t" in self.text else " ") + value + "\n"


def _read_lines(path: Path | TfdsSplit, columns: Columns) -> Iterator[_Line]:
    """All lines of a file; raises UserError for one that does not fit `columns`."""
    names: list[str] = []
    width = 0
    needs_names = isinstance(columns.word, str) or isinstance(columns.tag, str)
    texts = _tfds_texts(path, needs_names) if isinstance(path, TfdsSplit) else _texts(path, columns.encoding)
    is_conllu = isinstance(path, Path) and path.suffix == ".conllu"
    for number, text in enumerate(texts, start=1):
        place = f"{path}:{number}"
        fields = _split(text)
        if not text.strip(_BLANKS):
            yield _Line("blank", text, path, number)
        elif _COMMENT.fullmatch(text) or (is_conllu and _NO_WORD_OF_CONLLU.match(text)):
            yield _Line("document" if text.startswith(_NEW_DOCUMENT) else "comment", text, path, number)
        elif needs_names and not names:
            names = fields
            check_names(path, names)
            yield _Line("names", text, path, number)
        elif text.startswith(DOCUMENT_START):
            yield _Line("document", text, path, number)
        else:
            if width and len(fields) != width:
                raise UserError(f"{place} has {len(fields)} columns; the lines before it have {width}")
            width = len(fields)
            at = _index(fields, columns.word, names, place)
            tag = ""
            if columns.tag is not None:
                tag_at = _index(fields, columns.tag, names, place)
                if tag_at == at:  # else a model would learn to say the word itself
                    raise UserError(
                        f"{place}: column {at} is both --word-column and --tag-column; name two columns"
                    )
                tag = _pick(fields, tag_at, place)
            yield _Line("word", text, path, number, _pick(fields, at, place), tag)


def _texts(path: Path, encoding: str) -> Iterator[str]:
    if path.suffix in (".csv", *JSON_LINES):  # each line of which would be one word
        raise UserError(
            f"{path} is not a column file; give one word per line, with tabs or blanks between its columns "
            f"and a blank line between sentences, in a file with another ending, such as .tsv or .txt"
        )
    with _reading(path, encoding), path.open(encoding=encoding) as file:
        for number, line in enumerate(file):
            # `predict` reads utf-8, which leaves a byte order mark in the first word.
            yield line.rstrip("\n").removeprefix("" if number else "\ufeff")


@contextlib.contextmanager
def _reading(path: Path, encoding: str) -> Iterator[None]:
    """Turns errors of reading in the block into UserError or Unfinished."""
    try:
        yield
    except OSError as error:
        raise bad_input(error, path, f"{path} can't be read: {error.strerror}") from None
    except UnicodeError:  # a missing byte order mark is no UnicodeDecodeError
        raise UserError(f"{path} is not in {encoding}; give its encoding, such as latin-1") from None


def _tfds_texts(split: TfdsSplit, with_names: bool) -> Iterator[str]:
    """A data set as the lines of a column file, its columns in the order of CoNLL-2003."""
    check_columns(split, split.names, ["tokens"])
    names = [name for name in _TFDS_COLUMNS if name in split.names]
    if with_names:
        yield "\t".join(names)
    for record in split.records():
        words = zip(*(record[name] for name in names), strict=True)
        yield from ("\t".join(field or "" for field in fields) for fields in words)
        yield ""


def _index(fields: list[str], column: int | str, names: list[str], place: str) -> int:
    """The number of a column, from 0."""
    if isinstance(column, str):
        if column not in names:
            raise UserError(
                f"{place}: no column is named {column!r}; the first line names {', '.join(names)}"
            )
        column = names.index(column)
    if not -len(fields) <= column < len(fields):
        raise UserError(f"{place} has {len(fields)} columns, numbers 0 to {len(fields) - 1}, so no {column}")
    return column % len(fields)


def _pick(fields: list[str], column: int, place: str) -> str:
    if not fields[column]:
        raise UserError(f"{place}: column {column} is empty; a word or a tag must be there")
    return fields[column]
