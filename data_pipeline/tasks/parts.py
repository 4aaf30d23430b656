"""Finds the parts of a data set: files named after the part, with one of a few suffixes, or TFDS splits."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias, overload

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.names import PART_NAMES, PartName
from data_pipeline.tfds import TfdsSplit

Names: TypeAlias = Sequence[str]

TABLES = (".tsv", ".csv", ".jsonl")


@overload
def require_part(data: Path, part: PartName, suffixes: Names = ..., published: Names = ...) -> Path: ...
@overload
def require_part(
    data: str, part: PartName, suffixes: Names = ..., published: Names = ...
) -> Path | TfdsSplit: ...
def require_part(
    data: Path | str, part: PartName, suffixes: Names = TABLES, published: Names = ()
) -> Path | TfdsSplit:
    """The file or split of a part. As `find_part`, but also raises UserError if there is no such part."""
    if isinstance(data, str) and tfds.is_tfds(data):
        return TfdsSplit(data, tfds.choose_split(data, tfds.open_tfds(data), PART_NAMES[part]))
    file = find_part(Path(data), part, suffixes, published)
    if file is None:
        names = ", ".join((*PART_NAMES[part], *published))
        endings = ", ".join(suffix for suffix in suffixes if suffix)
        raise UserError(f"{data} has no file of the {part} set; looked for {names} with {endings}")
    return file


@overload
def find_part(
    data: Path, part: PartName, suffixes: Names = ..., published: Names = ..., without: str = ...
) -> Path | None: ...
@overload
def find_part(
    data: str, part: PartName, suffixes: Names = ..., published: Names = ..., without: str = ...
) -> Path | TfdsSplit | None: ...
def find_part(
    data: Path | str, part: PartName, suffixes: Names = TABLES, published: Names = (), without: str = ""
) -> Path | TfdsSplit | None:
    """The file or split of a part of a data set; None if there is none.

    Args:
      data: a folder; a str may also be tfds:NAME.
      suffixes: endings of file names; * stands for anything.
      published: file names that a published data set uses, besides those of `PART_NAMES`.
      without: pattern of file names to ignore.

    Raises:
      UserError: several files match; `data_pipeline.tfds.open_tfds` cannot open the data set.
    """
    if isinstance(data, str) and tfds.is_tfds(data):
        splits = tfds.open_tfds(data).info.splits
        return require_part(data, part) if set(PART_NAMES[part]) & set(splits) else None
    return find_file(Path(data), (*PART_NAMES[part], *published), suffixes, without)


def find_file(folder: Path, names: Names, suffixes: Names = TABLES, without: str = "") -> Path | None:
    """The file with one of these names and suffixes, or None. Raises UserError if there are several."""
    tried = [name + suffix for name in names for suffix in suffixes]
    files = [file for file in sorted(folder.iterdir()) if not fnmatchcase(file.name, without)]
    found = [f for f in files if any(fnmatchcase(f.name, name) for name in tried) and f.is_file()]
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(file.name for file in found)}; keep one of them")
    return found[0] if found else None
