"""The partial directory beside the output, in which a corpus grows until it is whole.

It records exactly what the corpus is made from, so the same command resumes where it stopped, and another
command cannot mix in its own shards.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipeline.atomic import write_json
from data_pipeline.corpus.documents import has_manifest
from data_pipeline.directories import lock_file
from data_pipeline.errors import UserError
from data_pipeline.json_text import load_json

_RECORD_FILE = ".record.json"
_LOCK_FILE = ".lock"
_REPLACED_DIRECTORY = ".replaced"


def partial_directory(output: Path) -> Path:
    """The directory in which the corpus `output` grows."""
    return output.with_name(f"{output.name}.partial")


def check_output(output: Path, overwrite: bool) -> None:
    """Raises UserError if `output` is in the way; with `overwrite`, if it is not a corpus."""
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists already; give another --output, or --overwrite to replace it")
    if output.exists() and not has_manifest(output):
        raise UserError(f"{output} is not a corpus, so --overwrite leaves it alone; give another --output")


@contextlib.contextmanager
def claim(output: Path, record: dict[str, Any], overwrite: bool) -> Iterator[Path]:
    """Yields the partial directory of `output`, locked for this process while the block runs.

    `record` is everything that decides the result. Raises UserError if `bert-jax prepare` did not make the
    directory or another process has locked it, and, unless `overwrite` clears the directory, if it was begun
    with another record or its record is damaged.
    """
    directory = partial_directory(output)
    directory.mkdir(parents=True, exist_ok=True)
    _check_ours(directory)
    with (directory / _LOCK_FILE).open("w") as lock:
        lock_file(lock, directory, f"another process is writing {directory}; wait for it, or stop it")
        _resume_or_begin(directory, record, overwrite)
        yield directory


def publish(directory: Path, output: Path) -> None:
    """Renames the finished directory to `output`; an old corpus of that name is removed.

    The old corpus is first moved into the finished directory, because any name beside the output could be in
    use by the user. Hidden files are removed: they served the preparation, or were left by a killed process.
    """
    old = directory / _REPLACED_DIRECTORY
    if output.exists():
        shutil.rmtree(old, ignore_errors=True)  # left by a run that was killed here
        output.rename(old)
    directory.rename(output)
    for path in output.glob(".*"):
        _remove(path)


def discard(directory: Path) -> None:
    """Removes the directory that `claim` yielded, with everything in it."""
    _clear(directory)
    shutil.rmtree(directory)


def _check_ours(directory: Path) -> None:
    """Raises UserError if the directory holds anything and was not made by `bert-jax prepare`."""
    # Listed before the check for the record, since another process may write the record in between.
    found = sorted(path.name for path in directory.iterdir())
    # A process that is killed before the record is written leaves the lock and a half-written record.
    foreign = [name for name in found if name != _LOCK_FILE and not name.startswith(f".{_RECORD_FILE}.")]
    if foreign and not (directory / _RECORD_FILE).exists():
        raise UserError(
            f"{directory} would be the directory to work in, but it holds {foreign[0]} and was not made by "
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
    """Raises UserError if the directory was begun with another record, or with one that is damaged."""
    file = directory / _RECORD_FILE
    try:
        begun = load_json(file)
        differing = sorted(n for n in begun.keys() | record.keys() if begun.get(n) != record.get(n))
    except (ValueError, AttributeError):
        raise UserError(f"{file} is damaged; give --overwrite to start anew") from None
    if begun != record:
        raise UserError(
            f"{directory} was begun with other {', '.join(differing)}; "
            f"run that command again to resume, or give --overwrite to start anew"
        )


def _clear(directory: Path) -> None:
    """Removes everything but the lock; the record last, since it shows that the rest is ours."""
    for path in directory.iterdir():
        if path.name not in (_LOCK_FILE, _RECORD_FILE):
            _remove(path)
    (directory / _RECORD_FILE).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
