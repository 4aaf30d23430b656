"""The parts of a data set: files named after them with one of a few suffixes, or splits of tfds:NAME."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.names import PART_NAMES, PartName

if TYPE_CHECKING:
    from data_pipeline.tfds import TfdsSplit

TABLES = (".tsv", ".csv", ".jsonl")


def require_source(
    data: str,
    part: PartName,
    suffixes: Sequence[str] = TABLES,
    published: Sequence[str] = (),
) -> "Path | TfdsSplit":
    """A part of `--data`, a folder or tfds:NAME. Raises UserError as `require_part` of either."""
    if tfds.is_tfds(data):
        return tfds.require_part(data, part)
    return require_part(Path(data), part, suffixes, published)


def find_source(
    data: str,
    part: PartName,
    suffixes: Sequence[str] = TABLES,
    published: Sequence[str] = (),
) -> "Path | TfdsSplit | None":
    """As `require_source`; None if there is no such part."""
    if tfds.is_tfds(data):
        return tfds.find_part(data, part)
    return find_part(Path(data), part, suffixes, published)


def require_part(
    folder: Path,
    part: PartName,
    suffixes: Sequence[str] = TABLES,
    published: Sequence[str] = (),
) -> Path:
    """The file of a part. Raises UserError if there is none, or more than one; arguments as `find_part`."""
    file = find_part(folder, part, suffixes, published)
    if file is None:
        names = ", ".join((*PART_NAMES[part], *published))
        endings = ", ".join(suffix for suffix in suffixes if suffix)
        raise UserError(f"{folder} has no file of the {part} set; looked for {names} with {endings}")
    return file


def find_part(
    folder: Path,
    part: PartName,
    suffixes: Sequence[str] = TABLES,
    published: Sequence[str] = (),
) -> Path | None:
    """The file of a part, None if there is none.

    Args:
      suffixes: of the names; * stands for anything.
      published: names besides `PART_NAMES`, those of a data set as it is published.

    Raises:
      UserError: there are several.
    """
    return find_file(folder, (*PART_NAMES[part], *published), suffixes)


def find_file(folder: Path, names: Sequence[str], suffixes: Sequence[str] = TABLES) -> Path | None:
    """The one file with one of those names and suffixes. Raises UserError if there are several."""
    tried = [name + suffix for name in names for suffix in suffixes]
    files = sorted(folder.iterdir())
    found = [f for f in files if any(fnmatchcase(f.name, name) for name in tried) and f.is_file()]
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(file.name for file in found)}; keep one of them")
    return found[0] if found else None
