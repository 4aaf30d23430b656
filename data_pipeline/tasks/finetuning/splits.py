"""Finds the splits of a data set: files named after the split, with one of a few suffixes, or TFDS splits."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias, overload

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.json_text import JSON_LINES_SUFFIXES
from data_pipeline.tfds import TfdsSplit

SplitName = Literal["train", "dev", "test"]

SPLIT_NAMES: Mapping[SplitName, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "val", "valid", "validation"),
    "test": ("test",),
}
"""Names that data sets give to their splits."""

Names: TypeAlias = Sequence[str]

JSON_LINES = (*JSON_LINES_SUFFIXES, ".json")
TABLES = (".tsv", ".csv", *JSON_LINES)
"""Suffixes of the files that `records.read_records` reads."""


@overload
def require_split(data: Path, split: SplitName, suffixes: Names = ..., published: Names = ...) -> Path: ...
@overload
def require_split(
    data: str, split: SplitName, suffixes: Names = ..., published: Names = ...
) -> Path | TfdsSplit: ...
def require_split(
    data: Path | str, split: SplitName, suffixes: Names = TABLES, published: Names = ()
) -> Path | TfdsSplit:
    """As `find_split`, but raises UserError if there is no such split."""
    if isinstance(data, str) and tfds.is_tfds(data):
        return TfdsSplit(data, tfds.choose_split(data, tfds.open_tfds(data), SPLIT_NAMES[split]))
    file = find_split(Path(data), split, suffixes, published)
    if file is None:
        names = ", ".join((*SPLIT_NAMES[split], *published))
        endings = ", ".join(suffix for suffix in suffixes if suffix)
        raise UserError(f"{data} has no file of the {split} set; looked for {names} with {endings}")
    return file


@overload
def find_split(
    data: Path, split: SplitName, suffixes: Names = ..., published: Names = ..., without: str = ...
) -> Path | None: ...
@overload
def find_split(
    data: str, split: SplitName, suffixes: Names = ..., published: Names = ..., without: str = ...
) -> Path | TfdsSplit | None: ...
def find_split(
    data: Path | str, split: SplitName, suffixes: Names = TABLES, published: Names = (), without: str = ""
) -> Path | TfdsSplit | None:
    """The file, or split of TFDS, of a split of a data set; None if there is none.

    Args:
      data: a directory; a str may also be tfds:NAME.
      suffixes: endings of file names; * stands for anything.
      published: file names that a published data set uses, besides those of `SPLIT_NAMES`; the file may
        also lie in a directory in `data`.
      without: pattern of file names to ignore.

    Raises:
      UserError: several files match; `data_pipeline.tfds.open_tfds` cannot open the data set.
    """
    if isinstance(data, str) and tfds.is_tfds(data):
        splits = tfds.open_tfds(data).info.splits
        return require_split(data, split) if set(SPLIT_NAMES[split]) & set(splits) else None
    return find_file(Path(data), SPLIT_NAMES[split], suffixes, published, without)


def find_file(
    directory: Path, names: Names, suffixes: Names = TABLES, published: Names = (), without: str = ""
) -> Path | None:
    """The file with one of these names and suffixes, or a directory of such a name with tables; None if
    neither.

    Raises UserError if there are several.
    """
    tried = [name + suffix for name in (*names, *published) for suffix in suffixes]
    inner = [name + suffix for name in published for suffix in suffixes]
    found = [file for file in directory.iterdir() if _matches(file, tried, without)]
    found = found or [file for file in directory.glob("*/*") if _matches(file, inner, without)]
    if not found and suffixes == TABLES:
        found = [directory / name for name in names if table_files(directory / name)]
    if len(found) > 1:
        raise UserError(f"{directory} has {' and '.join(sorted(f.name for f in found))}; keep one of them")
    return found[0] if found else None


def table_files(path: Path) -> list[Path]:
    """A table itself, or the tables in a directory, in order of their names; empty if there are none."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file for file in files if file.is_file() and file.suffix in TABLES]


def is_json_lines(path: Path) -> bool:
    """Whether a table, or a directory of tables, holds a JSON object on each line."""
    return any(file.suffix in JSON_LINES for file in table_files(path))


def _matches(file: Path, names: Names, without: str) -> bool:
    is_named = any(fnmatchcase(file.name, name) for name in names)
    return is_named and not fnmatchcase(file.name, without) and file.is_file()
