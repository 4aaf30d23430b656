"""Raw documents from files and from TFDS, one at a time.

A document is either text with one paragraph per line, still to be split into sentences, or a list of
sentences. A document longer than `cutting.LONGEST_DOCUMENT` is cut into several.
"""

import contextlib
import html
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.json_text import JSON_LINES_SUFFIXES, parse_object
from data_pipeline.names import EncodingErrors, FileFormat, Format
from data_pipeline.preparing.cutting import cut_document, gather_lines
from data_pipeline.preparing.tables import read_csv, read_parquet, read_tsv
from data_pipeline.preparing.text_lines import COMPRESSIONS, decode, read_lines

Document = str | list[str]

TFDS_ADVICE = "give --tfds-data-dir if it is already on disk"
_BY_SUFFIX: dict[str, FileFormat] = {
    **dict.fromkeys(JSON_LINES_SUFFIXES, "jsonl"),
    ".tsv": "tsv",
    ".csv": "csv",
    ".parquet": "parquet",
}
_PROSE = ("text", "lines", "sentences")
_LONGEST_FIRST_LINE = 16 << 20  # bytes; a longer line may be a whole large file, and shows no format
_ARCHIVES = (".tar", ".tgz", ".zip")
# WikiExtractor does not escape titles, which may hold > and quotation marks.
_DOC_TAG = re.compile(r'<doc\b(?:[^>"]|"[^"]*")*>|<doc\b[^>]*>')
_TITLE = re.compile(r'\btitle="(.*?)"(?=\s+\w+="|\s*>$)')


def read_file(
    path: Path,
    file_format: FileFormat,
    text_field: str,
    errors: EncodingErrors,
    on_bytes: Callable[[int], None],
) -> Iterator[Document]:
    """Yields the documents of one file, without empty ones.

    Args:
      text_field: the field or column with the text, in JSONL and tables.
      on_bytes: called with the number of bytes on disk read since its last call.

    Raises:
      UserError: the file is damaged, not UTF-8 or not of its format, or lacks `text_field`.
      Unfinished: the disk or the network failed.
    """
    with path.open("rb") as raw:
        if file_format == "parquet":
            yield from _cut_all(read_parquet(raw, path, text_field, errors, on_bytes))
            return
        lines = read_lines(path, raw, errors)
        last = 0
        for document in _parse(lines, path, file_format, text_field, errors):
            yield document
            on_bytes(raw.tell() - last)
            last = raw.tell()
        on_bytes(raw.tell() - last)


def read_sentences(lines: Iterable[str]) -> Iterator[list[str]]:
    """google-research/bert's input: one sentence per line, a blank line between documents."""
    for blank, group in itertools.groupby(map(str.strip, lines), lambda line: not line):
        if not blank:
            yield from cut_document(group)


def read_text(lines: Iterable[str]) -> Iterator[str]:
    """The whole file as one document; blank lines separate paragraphs, other line ends are only wrapping."""
    for paragraphs in gather_lines(" ".join(paragraph) for paragraph in read_sentences(lines)):
        yield "\n".join(paragraphs)


def read_wikiextractor(lines: Iterable[str], path: Path) -> Iterator[str]:
    """Documents from `<doc ...>` to `</doc>`, one paragraph per line; the repeated title is dropped.

    A document whose `</doc>` is missing ends where the next one begins. Raises UserError naming a line of
    `path` with text outside of documents.
    """
    for (_, tag), tagged in itertools.groupby(_lines_in_tags(lines, path), key=lambda line: line[0]):
        text = (html.unescape(line) for _, line in tagged)
        yield from map("\n".join, cut_document(_without_title(text, tag)))


def read_jsonl(lines: Iterable[str], path: Path, field: str, errors: EncodingErrors) -> Iterator[str]:
    """Documents in the `field` of one JSON object per line; each line of the text is a paragraph.

    Raises UserError naming a line of `path` that is no JSON object, whose `field` is neither text nor null,
    or that holds half a surrogate pair while `errors` is strict.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            text = _json_text(line, field, f"{path}, line {number}")
            yield from _cut(_without_half_characters(text, f"{path}, line {number}", errors))


def read_tfds(name: str, data_dir: str | None, text_field: str, errors: EncodingErrors) -> Iterator[str]:
    """The documents in the split `train` of a TFDS data set, in the order of its files.

    Raises UserError if the data set cannot be opened, or has no such split, no such field, or a text that is
    not UTF-8.
    """
    builder = tfds.open_tfds(name, data_dir, TFDS_ADVICE)
    split = tfds.choose_split(name, builder, ["train"])
    fields = sorted(tfds.text_fields(builder))
    if text_field not in fields:
        raise UserError(
            f"{name} has no field {text_field} of text (--text-field); it has {', '.join(fields) or 'none'}"
        )
    for number, example in enumerate(tfds.read_split(builder, split).as_numpy_iterator(), start=1):
        yield from _cut(decode(example[text_field], errors, f"{name}, example {number}"))


def choose_format(path: Path, chosen: Format) -> FileFormat:
    """The format of a file: the chosen one, or with auto what its name or its first line says.

    Prose has no name of its own, so among files of prose one named .jsonl, .csv, .tsv or .parquet is what its
    name says. Raises UserError if the format is not clear, or for an archive.
    """
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    suffix = name.suffix.lower()
    if suffix in _ARCHIVES:
        raise UserError(f"{path} is an archive; unpack it, and give its files")
    if suffix in _BY_SUFFIX and chosen in ("auto", *_PROSE):
        return _BY_SUFFIX[suffix]
    if chosen != "auto":
        return chosen
    with path.open("rb") as raw:
        lines = read_lines(path, raw, "replace", _LONGEST_FIRST_LINE)
        first = next((line for line in lines if line.strip()), "")
    if _DOC_TAG.match(first.strip()):
        return "wikiextractor"
    with contextlib.suppress(UserError):
        parse_object(first, path)
        return "jsonl"
    raise UserError(
        f"the format of {path} is not clear; give --format sentences (one sentence per line, "
        f"a blank line between documents), lines (one document per line), text (one per file) or jsonl"
    )


def _parse(
    lines: Iterator[str], path: Path, file_format: FileFormat, text_field: str, errors: EncodingErrors
) -> Iterator[Document]:
    match file_format:
        case "jsonl":
            return read_jsonl(lines, path, text_field, errors)
        case "tsv":
            return _cut_all(read_tsv(lines, path, text_field))
        case "csv":
            return _cut_all(read_csv(lines, path, text_field))
        case "wikiextractor":
            return read_wikiextractor(lines, path)
        case "text":
            return read_text(lines)
        case "lines":
            return _cut_all(lines)
        case "sentences":
            return read_sentences(lines)
        case "parquet":
            raise AssertionError("a Parquet file has no lines")


def _lines_in_tags(lines: Iterable[str], path: Path) -> Iterator[tuple[tuple[int, str], str]]:
    """The lines of documents that are not blank, each with the number and the `<doc ...>` of its document."""
    number, tag = 0, None
    for line_number, line in enumerate(map(str.strip, lines), start=1):
        if opening := _DOC_TAG.match(line):
            number, tag = number + 1, opening[0]
            line = line.removeprefix(tag)
        text = line.removesuffix("</doc>").strip()
        if text:
            if tag is None:
                raise UserError(
                    f"{path}, line {line_number} is outside of <doc ...> and </doc>; delete it, or give the "
                    "file's own --format"
                )
            yield (number, tag), text
        if line.endswith("</doc>"):
            tag = None


def _without_title(lines: Iterator[str], tag: str) -> Iterator[str]:
    found = _TITLE.search(tag)
    first = next(lines, None)
    if first is not None and not (found and first == html.unescape(found[1])):
        yield first
    yield from lines


def _json_text(line: str, field: str, place: str) -> str:
    record = parse_object(line, place)
    if field in record and record[field] is None:
        return ""  # null is no document, as in Parquet
    if field in record and not isinstance(record[field], str):
        raise UserError(f"{place}: {field} is {json.dumps(record[field])[:40]}; it must be text")
    if field not in record:
        raise UserError(
            f"{place} has no text in the field {field}; "
            f"--text-field names one of its fields: {', '.join(record) or 'there is none'}"
        )
    return record[field]


def _without_half_characters(text: str, place: str, errors: EncodingErrors) -> str:
    """Joins surrogate pairs. Half a pair, possible in JSON but in no encoding, is an error or is replaced."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", errors)
    except UnicodeDecodeError:
        raise UserError(
            f"{place} holds half of a surrogate pair; mend it, or go on with --encoding-errors replace"
        ) from None


def _cut_all(texts: Iterable[str]) -> Iterator[str]:
    return itertools.chain.from_iterable(map(_cut, texts))


def _cut(text: str) -> Iterator[str]:
    """Yields a text as a document with one paragraph per line: in pieces if too long, not at all if blank."""
    return map("\n".join, cut_document(filter(None, map(str.strip, text.split("\n")))))
