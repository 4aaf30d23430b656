"""Finds the inputs and their formats: files, directories, globs, TFDS and the installed documentation."""

import dataclasses
import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_pipeline import tfds
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.directories import check_path
from data_pipeline.errors import UserError
from data_pipeline.names import EncodingErrors, FileFormat, Format
from data_pipeline.preparing.readers import TFDS_ADVICE, Document, choose_format, read_file, read_tfds


@dataclasses.dataclass(frozen=True)
class Source:
    """What to read, and how."""

    inputs: tuple[str, ...]
    """Files, directories, globs, `tfds:NAME` or `installed-documentation`."""
    format: Format = "auto"
    text_field: str = "text"
    """The field that holds the text, in JSONL, tables and TFDS."""
    encoding_errors: EncodingErrors = "strict"
    tfds_data_dir: str | None = None
    """Where TFDS keeps its data; None for its default."""


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file that was found, and how it is read."""

    path: Path
    format: FileFormat

    def __str__(self) -> str:
        return str(self.path)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A source whose files have been found and whose formats are known."""

    source: Source
    items: tuple[InputFile | str, ...]
    """Inputs in reading order; a string is an input that is not a file, such as `tfds:NAME`."""
    left_out: tuple[NDArray[np.int64], ...] = dataclasses.field(default=(), compare=False)
    """For each item the numbers of its documents that are not read, from 0; empty if all are."""

    @property
    def total_bytes(self) -> int | None:
        """Size of all files on disk, compressed ones not expanded; None if some input is not a file."""
        if any(isinstance(item, str) for item in self.items):
            return None
        return sum(item.path.stat().st_size for item in self.items if isinstance(item, InputFile))

    def absolute(self) -> "Inputs":
        """The same inputs with absolute paths, for processes with another working directory."""
        items = (
            dataclasses.replace(item, path=item.path.absolute()) if isinstance(item, InputFile) else item
            for item in self.items
        )
        return dataclasses.replace(self, items=tuple(items))

    def part(self, start: int, stop: int) -> "Inputs":
        """The items [start, stop)."""
        return Inputs(self.source, self.items[start:stop], self.left_out[start:stop])

    def fingerprint(self) -> list[list[str | int]]:
        """A value that changes if the inputs change: path, format, size and modification time of each file.

        For the installed documentation it is a hash of its sources, for a TFDS data set its full name, with
        the version.
        """
        return [_fingerprint(item, self.source) for item in self.items]

    def directories(self) -> list[Path]:
        """The directories that the inputs name, all of which are searched for files."""
        names = filter(_is_file_name, self.source.inputs)
        return [path for name in names for path in _match(name) if path.is_dir()]

    def documents(self, on_bytes: Callable[[int], None] = lambda count: None) -> Iterator[Document]:
        """Yields the documents in order; passes to `on_bytes` how many bytes were read since its last call.

        Raises UserError naming the file, and the place in it, that cannot be read.
        """
        for number, item in enumerate(self.items):
            left_out = set(self.left_out[number].tolist()) if self.left_out else set()
            documents = enumerate(self._read(item, on_bytes))
            yield from (document for place, document in documents if place not in left_out)

    def _read(self, item: InputFile | str, on_bytes: Callable[[int], None]) -> Iterator[Document]:
        field, errors = self.source.text_field, self.source.encoding_errors
        if isinstance(item, InputFile):
            return read_file(item.path, item.format, field, errors, on_bytes)
        if item == INSTALLED_DOCUMENTATION:
            from data_pipeline.preparing.documentation import documents_of_packages

            return (sentences for _, sentences in documents_of_packages())
        return read_tfds(item, self.source.tfds_data_dir, field, errors)


def find_inputs(source: Source) -> Inputs:
    """Finds the files of a source and their formats.

    A file that is named more than once, directly or by a link, is read once, where it is named first.

    Raises UserError naming an input that matches no file, or a file whose format is unclear.
    """
    if not source.inputs:
        raise UserError(
            f"no input given; give files, directories, globs, tfds:NAME or {INSTALLED_DOCUMENTATION}"
        )
    items: list[InputFile | str] = []
    seen = set[Path]()
    for name in source.inputs:
        if _is_file_name(name):
            check_path(name, "the input")
            new = [path for path in find_files(name) if path.resolve() not in seen]
            seen.update(path.resolve() for path in new)
            items += [InputFile(path, choose_format(path, source.format)) for path in new]
        else:
            items.append(name)
    return Inputs(source, tuple(items))


def find_files(pattern: str) -> list[Path]:
    """Returns the files that a path or glob matches, and the non-hidden ones below matched directories,
    sorted.

    A file with several names is listed once, under a name that is not a link if it has one.

    Raises UserError if there are none, or for a pipe and a link to nothing; OSError if a directory cannot be
    read.
    """
    found = _match(pattern)
    files = {path for path in found if _is_file(path)}
    files |= {path for directory in found if directory.is_dir() for path in _walk(directory)}
    if not files and found:
        raise UserError(f"{pattern} holds no files, apart from hidden ones; give one that does")
    if not files:
        raise UserError(f"no file matches {pattern}; give files, directories, globs or tfds:NAME")
    names: dict[Path, Path] = {}
    for path in sorted(files, key=lambda path: (path.is_symlink(), path)):
        names.setdefault(path.resolve(), path)
    return sorted(names.values())


def _fingerprint(item: InputFile | str, source: Source) -> list[str | int]:
    if isinstance(item, InputFile):
        status = item.path.stat()
        return [str(item.path), item.format, status.st_size, status.st_mtime_ns]
    if item == INSTALLED_DOCUMENTATION:
        from data_pipeline.preparing.documentation import fingerprint

        return [item, fingerprint()]
    return [item, tfds.open_tfds(item, source.tfds_data_dir, TFDS_ADVICE).info.full_name]


def _is_file_name(name: str) -> bool:
    return name != INSTALLED_DOCUMENTATION and not tfds.is_tfds(name)


def _match(pattern: str) -> list[Path]:
    path = Path(pattern)
    return [path] if path.exists() else [Path(name) for name in glob.glob(pattern, recursive=True)]


def _walk(root: Path) -> Iterator[Path]:
    """Yields the files below a directory, following links to directories; hidden files and directories are
    left out.

    No directory is visited twice, and one that is also linked is visited under its own name.
    """
    directories, seen = [root], set[tuple[int, int]]()
    for start in directories:  # grows as links to directories are found
        for directory, inner, names in os.walk(start, onerror=_raise):
            status = os.stat(directory)
            key = (status.st_dev, status.st_ino)
            if key in seen:
                inner.clear()
                continue
            seen.add(key)
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            paths = [Path(directory, name) for name in names if not name.startswith(".")]
            yield from filter(_is_file, paths)
            directories += [path for name in inner if (path := Path(directory, name)).is_symlink()]


def _is_file(path: Path) -> bool:
    """False for a directory. Raises UserError for what is neither, whose text would be missing."""
    if path.is_file() or path.is_dir():
        return path.is_file()
    kind = "a link to a file that does not exist" if path.is_symlink() else "no file, but a pipe or a device"
    raise UserError(f"{path} is {kind}; give files")


def _raise(error: OSError) -> None:
    raise error
