"""Raw documents out of files, folders, globs, TFDS and the installed documentation, one at a time.

A document is either text with a paragraph a line, still to be split into sentences, or a list of
sentences. One that is longer than `LONGEST_DOCUMENT` is cut, so that nothing later grows with the input.
"""

import dataclasses
import glob
import gzip
import html
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import zstandard

from data_pipeline import tfds
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.folders import check_path
from data_pipeline.names import EncodingErrors, FileFormat, Format

Document = str | list[str]

# Characters, to the end of the line that reaches them. A longer document (a whole library in one file) is
# cut between lines, a line that is longer by itself at a blank; training never looks further than a few
# hundred tokens, so only the bookkeeping notices.
LONGEST_DOCUMENT = 4 << 20

_JSONL_SUFFIXES = (".jsonl", ".ndjson")
_COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
_ZSTD_BYTES = 16 << 10  # compressed ones that are read at once; what they decompress to is in memory
_TFDS_ADVICE = "give --tfds-data-dir if it is already on disk"
_DOC_TAG = re.compile(r"<doc\b[^>]*>")
_TITLE = re.compile(r'\btitle="([^"]*)"')


@dataclasses.dataclass(frozen=True)
class Source:
    """What to read, and how."""

    inputs: tuple[str, ...]
    """Files, folders, globs, `tfds:NAME` or `installed-documentation`."""
    format: Format = "auto"
    text_field: str = "text"
    """The field that holds the text, in JSONL and TFDS."""
    encoding_errors: EncodingErrors = "strict"
    tfds_data_dir: str | None = None
    """Where TFDS keeps its data; None for its default."""


@dataclasses.dataclass(frozen=True)
class InputFile:
    path: Path
    format: FileFormat

    def __str__(self) -> str:
        return str(self.path)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A source whose files have been found and whose formats are known."""

    source: Source
    parts: tuple[InputFile | str, ...]
    """In reading order; a string is a name that is not a file."""

    @property
    def total_bytes(self) -> int | None:
        """On disk, compressed files as they are; None if some input is not a file."""
        if any(isinstance(part, str) for part in self.parts):
            return None
        return sum(part.path.stat().st_size for part in self.parts if isinstance(part, InputFile))

    def absolute(self) -> "Inputs":
        """The same files, named so that a process in another folder finds them."""
        parts = (
            dataclasses.replace(part, path=part.path.absolute()) if isinstance(part, InputFile) else part
            for part in self.parts
        )
        return Inputs(self.source, tuple(parts))

    def fingerprint(self) -> list[list[str | int]]:
        """What tells whether the inputs are still the same: path, size and time of each file.

        Of the documentation, which sources are installed; of a TensorFlow dataset its version.
        """
        return [_fingerprint(part, self.source) for part in self.parts]

    def folders(self) -> list[Path]:
        """Those that were named and searched."""
        names = filter(_is_file_name, self.source.inputs)
        return [path for name in names for path in _match(name) if path.is_dir()]

    def documents(self, on_bytes: Callable[[int], None] = lambda count: None) -> Iterator[Document]:
        """Every document in order; `on_bytes` hears how many bytes on disk were read since the last call.

        Raises UserError naming the file and the place of whatever cannot be read.
        """
        for part in self.parts:
            yield from self._read(part, on_bytes)

    def _read(self, part: InputFile | str, on_bytes: Callable[[int], None]) -> Iterator[Document]:
        if isinstance(part, InputFile):
            return read_file(part, self.source, on_bytes)
        if part == INSTALLED_DOCUMENTATION:
            from data_pipeline.documentation import installed_documentation

            return iter(installed_documentation())
        return read_tfds(part, self.source)


def find_inputs(source: Source) -> Inputs:
    """Find the files and their formats. Raises UserError naming what matches nothing or is unclear."""
    if not source.inputs:
        raise UserError(f"no input given; give files, folders, globs, tfds:NAME or {INSTALLED_DOCUMENTATION}")
    parts: list[InputFile | str] = []
    for name in source.inputs:
        if _is_file_name(name):
            check_path(name, "the input")
            parts += [InputFile(path, _format_of(path, source)) for path in find_files(name)]
        else:
            parts.append(name)
    return Inputs(source, tuple(parts))


def find_files(pattern: str) -> list[Path]:
    """The files of a path or a glob, and all below its folders but hidden ones, sorted.

    Raises UserError if there are none, OSError if a folder cannot be read.
    """
    found = _match(pattern)
    files = [path for path in found if path.is_file()]
    below = {path for folder in found if folder.is_dir() for path in _walk(folder)}
    files = sorted([*files, *below.difference(files)])
    if not files:
        raise UserError(f"no file matches {pattern}; give files, folders, globs or tfds:NAME")
    return files


def read_file(
    file: InputFile, source: Source, on_bytes: Callable[[int], None] = lambda count: None
) -> Iterator[Document]:
    """The documents of one file, without those that are empty."""
    with file.path.open("rb") as raw:
        lines = _lines(file.path, raw, source.encoding_errors)
        last = 0
        for document in _parse(lines, file, source):
            yield document
            on_bytes(raw.tell() - last)
            last = raw.tell()
        on_bytes(raw.tell() - last)


def read_sentences(lines: Iterable[str]) -> Iterator[list[str]]:
    """google-research/bert's input: a sentence a line, a blank line between documents."""
    for blank, group in itertools.groupby(map(str.strip, lines), lambda line: not line):
        if not blank:
            yield from _cut(_shortened(group))


def read_text(lines: Iterable[str]) -> Iterator[str]:
    """The whole file is a document; blank lines part paragraphs, other line ends are only wrapping."""
    for paragraphs in _cut(" ".join(part) for part in read_sentences(lines)):
        yield "\n".join(paragraphs)


def read_wikiextractor(lines: Iterable[str]) -> Iterator[str]:
    """`<doc ...>` to `</doc>` is a document, a line a paragraph; the title's repetition is dropped."""
    lines = iter(map(str.strip, lines))
    for line in lines:
        if not _DOC_TAG.match(line):
            continue
        body = itertools.takewhile(lambda text: text != "</doc>", lines)
        text = map(html.unescape, filter(None, body))
        yield from map("\n".join, _cut(_shortened(_without_title(text, line))))


def read_jsonl(
    lines: Iterable[str], path: Path, field: str, errors: EncodingErrors = "strict"
) -> Iterator[str]:
    """An object a line, its text in `field`, a line of which is a paragraph."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            text = _json_text(line, field, f"{path}, line {number}")
            yield from _paragraphs(_without_half_characters(text, f"{path}, line {number}", errors))


def read_tfds(name: str, source: Source) -> Iterator[str]:
    """The split `train` of a TensorFlow dataset, in the order of its files."""
    builder = tfds.open_tfds(name, source.tfds_data_dir, _TFDS_ADVICE)
    split = tfds.choose_split(name, builder, ["train"])
    fields = sorted(tfds.text_fields(builder))
    if source.text_field not in fields:
        raise UserError(
            f"{name} has no text in the field {source.text_field}; --text-field is one of {', '.join(fields)}"
        )
    for number, example in enumerate(tfds.read_split(builder, split).as_numpy_iterator(), start=1):
        try:
            text = example[source.text_field].decode("utf-8", source.encoding_errors)
        except UnicodeDecodeError:
            raise UserError(
                f"{name}, example {number} is not UTF-8; go on with --encoding-errors replace"
            ) from None
        yield from _paragraphs(text)


def _parse(lines: Iterator[str], file: InputFile, source: Source) -> Iterator[Document]:
    if file.format == "jsonl":
        return read_jsonl(lines, file.path, source.text_field, source.encoding_errors)
    if file.format == "wikiextractor":
        return read_wikiextractor(lines)
    return read_text(lines) if file.format == "text" else read_sentences(lines)


def _lines(path: Path, raw: IO[bytes], errors: EncodingErrors) -> Iterator[str]:
    """Decoded lines; a byte order mark is dropped."""
    offset = 0
    try:
        for line in _decompressed(path, raw):
            text = line.decode("utf-8", errors)
            yield text if offset else text.removeprefix("\ufeff")
            offset += len(line)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 at byte {offset + error.start}; "
            f"convert it, or go on with --encoding-errors replace"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError, _DamagedError) as error:
        raise UserError(f"{path} cannot be read after byte {offset}: {error}") from error
    except OSError as error:  # the disk or the network, not the file
        raise Unfinished(
            f"{path} cannot be read after byte {offset}: {error}; run the same command again to go on"
        ) from error


def _decompressed(path: Path, raw: IO[bytes]) -> Iterable[bytes]:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if path.suffix == ".zst":
        return io.BufferedReader(_ZstdFrames(raw))
    return _bz2_or_xz(path.suffix, raw) if path.suffix in (".bz2", ".xz") else raw


class _DamagedError(Exception):
    """A compressed file does not hold what its name says."""


def _bz2_or_xz(suffix: str, raw: IO[bytes]) -> Iterator[bytes]:
    # Imported here: a Python that was built without their libraries lacks these modules.
    import bz2
    import lzma

    open_file = bz2.BZ2File if suffix == ".bz2" else lzma.LZMAFile
    try:
        yield from io.BufferedReader(open_file(raw))  # by themselves they take twice the time for lines
    except lzma.LZMAError as error:
        raise _DamagedError(error) from error
    except OSError as error:
        if error.errno is not None:  # the disk's; bz2 raises one without
            raise
        raise _DamagedError(error) from error


class _ZstdFrames(io.RawIOBase):
    """What the frames of a file hold; unlike zstandard's own reader it notices that the last is cut off."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._decompressed = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError at the end of the file if it is not that of a frame."""
        while not self._decompressed:
            compressed = self._frame.unused_data or self._raw.read(_ZSTD_BYTES)
            if not compressed and self._frame.eof:
                return 0
            if not compressed:
                raise EOFError("the file ends inside a compressed frame")
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._decompressed = memoryview(self._frame.decompress(compressed))
        size = min(len(buffer), len(self._decompressed))
        buffer[:size], self._decompressed = self._decompressed[:size], self._decompressed[size:]
        return size


def _format_of(path: Path, source: Source) -> FileFormat:
    if source.format != "auto":
        return source.format
    name = path.with_suffix("") if path.suffix in _COMPRESSIONS else path
    if name.suffix in _JSONL_SUFFIXES:
        return "jsonl"
    with path.open("rb") as raw:
        first = next((line for line in _lines(path, raw, "replace") if line.strip()), "")
    if _DOC_TAG.match(first.strip()):
        return "wikiextractor"
    raise UserError(
        f"the format of {path} is not clear; give --format sentences (a sentence a line, "
        f"a blank line between documents) or --format text (a file is a document)"
    )


def _without_title(lines: Iterator[str], tag: str) -> Iterator[str]:
    found = _TITLE.search(tag)
    first = next(lines, None)
    if first is not None and not (found and first == html.unescape(found[1])):
        yield first
    yield from lines


def _json_text(line: str, field: str, place: str) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise UserError(f"{place} is not a JSON object; each line must be one, with a field {field}")
    if not isinstance(record.get(field), str):
        raise UserError(
            f"{place} has no text in the field {field}; "
            f"--text-field names one of its fields: {', '.join(record) or 'there is none'}"
        )
    return record[field]


def _without_half_characters(text: str, place: str, errors: EncodingErrors) -> str:
    """JSON can escape one half of a surrogate pair, which is no text: no encoding has it."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", errors)
    except UnicodeDecodeError:
        raise UserError(
            f"{place} holds half of a surrogate pair; mend it, or go on with --encoding-errors replace"
        ) from None


def _paragraphs(text: str) -> Iterator[str]:
    return map("\n".join, _cut(_shortened(filter(None, map(str.strip, text.split("\n"))))))


def cut_line(line: str, longest: int) -> Iterator[str]:
    """The line in pieces of at most `longest` characters, which end at blanks where there are any."""
    start = 0
    while len(line) - start > longest:
        blank = line.rfind(" ", start + 1, start + longest + 1)
        stop = blank if blank > 0 else start + longest
        yield line[start:stop]
        start = stop + line.startswith(" ", stop)
    if start < len(line):
        yield line[start:]


def _shortened(lines: Iterable[str]) -> Iterator[str]:
    return (piece for line in lines for piece in cut_line(line, LONGEST_DOCUMENT))


def _cut(lines: Iterable[str]) -> Iterator[list[str]]:
    """Gather lines up to the longest document; more than one part only if they are longer than it."""
    part: list[str] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= LONGEST_DOCUMENT:
            yield part
            part, size = [], 0
    if part:
        yield part


def _fingerprint(part: InputFile | str, source: Source) -> list[str | int]:
    if isinstance(part, InputFile):
        status = part.path.stat()
        return [str(part.path), part.format, status.st_size, status.st_mtime_ns]
    if part == INSTALLED_DOCUMENTATION:
        from data_pipeline.documentation import fingerprint

        return [part, fingerprint()]
    return [part, tfds.open_tfds(part, source.tfds_data_dir, _TFDS_ADVICE).info.full_name]


def _is_file_name(name: str) -> bool:
    return name != INSTALLED_DOCUMENTATION and not tfds.is_tfds(name)


def _match(pattern: str) -> list[Path]:
    path = Path(pattern)
    return [path] if path.exists() else [Path(name) for name in glob.glob(pattern, recursive=True)]


def _walk(root: Path) -> Iterator[Path]:
    """The files below a folder, linked folders too; none is read twice, and by its own name if it has one."""
    folders, seen = [root], set[tuple[int, int]]()
    for start in folders:  # which grows
        for folder, inner, names in os.walk(start, onerror=_raise):
            status = os.stat(folder)
            key = (status.st_dev, status.st_ino)
            if key in seen:
                inner.clear()
                continue
            seen.add(key)
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            paths = [Path(folder, name) for name in names if not name.startswith(".")]
            yield from (path for path in paths if path.is_file())
            folders += [path for name in inner if (path := Path(folder, name)).is_symlink()]


def _raise(error: OSError) -> None:
    raise error
