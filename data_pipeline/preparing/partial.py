"""The folder beside the output in which a corpus grows until it is whole.

It remembers exactly what it is made from, so the same command resumes where it stopped and another
one cannot mix its shards in.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipeline.atomic import write_json
from data_pipeline.corpus import has_manifest
from data_pipeline.errors import UserError
from data_pipeline.folders import lock_file

_RECORD_FILE = ".record.json"
_LOCK_FILE = ".lock"
_REPLACED_FOLDER = ".replaced"


def partial_directory(output: Path) -> Path:
    """Where the corpus `output` grows."""
    return output.with_name(f"{output.name}.partial")


def check_output(output: Path, overwrite: bool) -> None:
    """Raises UserError if `output` is in the way; with `overwrite`, if it is not a corpus."""
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists already; give another --output, or --overwrite to replace it")
    if output.exists() and not has_manifest(output):
        raise UserError(f"{output} is not a corpus, so --overwrite leaves it alone; give another --output")


@contextlib.contextmanager
def claim(output: Path, record: dict[str, Any], overwrite: bool) -> Iterator[Path]:
    """The partial folder of `output`, held by this process alone while the block runs.

    `record` is everything that decides the result. Raises UserError if the folder is not one of ours or is
    another process's; if it was begun with another record, or one that is damaged (`overwrite` clears it).
    """
    directory = partial_directory(output)
    directory.mkdir(parents=True, exist_ok=True)
    _check_ours(directory)
    with (directory / _LOCK_FILE).open("w") as lock:
        lock_file(lock, directory, f"another process is writing {directory}; wait for it, or stop it")
        _resume_or_begin(directory, record, overwrite)
        yield directory


def publish(directory: Path, output: Path) -> None:
    """Give the finished folder its name; an old corpus of that name makes way.

    It moves into the finished folder, where all is ours: no name beside the output can be a user's. Hidden
    files were for the making alone, or left by whoever was killed over it, and go.
    """
    old = directory / _REPLACED_FOLDER
    if output.exists():
        shutil.rmtree(old, ignore_errors=True)  # of a run that was killed here
        output.rename(old)
    directory.rename(output)
    for path in output.glob(".*"):
        _remove(path)


def discard(directory: Path) -> None:
    """Remove the folder that `claim` gave, and all that is in it."""
    _clear(directory)
    shutil.rmtree(directory)


def _check_ours(directory: Path) -> None:
    """Raises UserError if something other than a corpus grows here."""
    # Listed before the record is looked for: another process may write it between the two.
    found = sorted(path.name for path in directory.iterdir())
    # Until there is a record, a start that was killed leaves the lock and a record half written.
    foreign = [name for name in found if name != _LOCK_FILE and not name.startswith(f".{_RECORD_FILE}.")]
    if foreign and not (directory / _RECORD_FILE).exists():
        raise UserError(
            f"{directory} would be the folder to work in, but it holds {foreign[0]} and was not made by "
            f"`bert-jax prepare`; rename it, or give another --output"
        )


def _resume_or_begin(directory: Path, record: dict[str, Any], overwrite: bool) -> None:
    if (directory / _RECORD_FILE).exists():
        try:
            _check_same(directory, record)
            return
        except UserError:
            if not overwrite:
                raise
    _clear(directory)
    write_json(directory / _RECORD_FILE, record)


def _check_same(directory: Path, record: dict[str, Any]) -> None:
    """Raises UserError if the folder was begun with another record, or with one that is damaged."""
    file = directory / _RECORD_FILE
    try:
        begun = json.loads(file.read_text(encoding="utf-8"))
        differing = sorted(name for name in record if begun.get(name) != record[name])
    except (ValueError, AttributeError):
        raise UserError(f"{file} is damaged; give --overwrite to start anew") from None
    if begun != record:
        raise UserError(
            f"{directory} was begun with other {', '.join(differing)}; "
            f"run that command again to resume, or give --overwrite to start anew"
        )


def _clear(directory: Path) -> None:
    """Remove everything but the lock; the record last, since it tells that the rest is ours."""
    for path in directory.iterdir():
        if path.name not in (_LOCK_FILE, _RECORD_FILE):
            _remove(path)
    (directory / _RECORD_FILE).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
