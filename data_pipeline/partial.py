"""The folder beside the output in which a corpus grows until it is whole.

It remembers exactly what it is made from, so the same command goes on where it stopped and another
one cannot mix its shards in.
"""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipeline.atomic import write_json
from data_pipeline.corpus import MANIFEST_FILE
from data_pipeline.errors import UserError

_RECORD_FILE = ".record.json"
_LOCK_FILE = ".lock"


def partial_directory(output: Path) -> Path:
    """Where the corpus `output` grows."""
    return output.with_name(f"{output.name}.partial")


def check_output(output: Path, overwrite: bool) -> None:
    """Raises UserError if `output` is in the way; with `overwrite`, if it is not a corpus."""
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists already; give another --output, or --overwrite to replace it")
    if output.exists() and not (output / MANIFEST_FILE).is_file():
        raise UserError(f"{output} is not a corpus, so --overwrite leaves it alone; give another --output")


@contextlib.contextmanager
def claim(output: Path, record: dict[str, Any], overwrite: bool) -> Iterator[Path]:
    """The partial folder of `output`, held by this process alone while the block runs.

    `record` is everything that decides the result. Raises UserError if the folder is another
    process's, or was begun with another record (`overwrite` clears it instead).
    """
    directory = partial_directory(output)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is writing {directory}; wait for it, or stop it") from None
        _resume_or_begin(directory, record, overwrite)
        yield directory


def publish(directory: Path, output: Path) -> None:
    """Give the finished folder its name; an old corpus of that name makes way.

    Hidden files were for the making alone, or left by whoever was killed over it, and go.
    """
    old = output.with_name(f"{output.name}.replaced")
    if output.exists():
        shutil.rmtree(old, ignore_errors=True)  # of a run that was killed here
        output.rename(old)
    directory.rename(output)
    for path in output.glob(".*"):
        _remove(path)
    shutil.rmtree(old, ignore_errors=True)


def _resume_or_begin(directory: Path, record: dict[str, Any], overwrite: bool) -> None:
    begun = _read_record(directory)
    if begun == record:
        return
    if begun is not None and not overwrite:
        differing = sorted(name for name in record if begun.get(name) != record[name])
        raise UserError(
            f"{directory} was begun with other {', '.join(differing)}; "
            f"run that command again to go on, or give --overwrite to start anew"
        )
    _clear(directory)
    write_json(directory / _RECORD_FILE, record)


def _read_record(directory: Path) -> dict[str, Any] | None:
    try:
        return json.loads((directory / _RECORD_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != _LOCK_FILE:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
