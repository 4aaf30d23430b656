"""The files of a user's own data set: `train`, `dev`, `test` with one of a few suffixes."""

from pathlib import Path

from data_pipeline.errors import UserError

_SUFFIXES = (".tsv", ".csv", ".jsonl")


def require_table(folder: Path, name: str) -> Path:
    """The file of a part. Raises UserError if there is none, or more than one."""
    file = find_table(folder, name)
    if file is None:
        raise UserError(f"{folder} has no {', '.join(name + suffix for suffix in _SUFFIXES)}; it needs one")
    return file


def find_table(folder: Path, name: str) -> Path | None:
    """The one file of that name with a suffix of a table. Raises UserError if there are several."""
    found = [folder / f"{name}{suffix}" for suffix in _SUFFIXES if (folder / f"{name}{suffix}").exists()]
    if len(found) > 1:
        raise UserError(f"{folder} has {' and '.join(file.name for file in found)}; keep one of them")
    return found[0] if found else None
