"""Files and directories that appear whole or not at all: made under another name beside, then renamed."""

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_pipeline.directories import follow_links
from data_pipeline.errors import Unfinished, has_no_room


@contextlib.contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """Yields a free name beside `path`; the file or directory that the block makes there is renamed to
    `path`.

    The content is synced to disk before the rename, so a power cut never leaves half of it under `path`.
    If the block fails, what it made is removed and `path` is unchanged; a killed process leaves the hidden
    partial file behind. If several processes write `path` at once, the last one wins. A directory does not
    replace a directory that holds anything. A path that cannot be replaced, such as /dev/stdout when it is a
    pipe, is written directly.
    """
    asked_for = str(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    path = follow_links(path)  # if `path` is a link, its target is replaced and the link stays
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield partial
        synchronize(partial)
        partial.replace(path)
    except OSError as error:
        if has_no_room(error):  # the failed write named no file, or, of two, the one that it read
            error.filename = asked_for
        elif isinstance(error.filename, str | Path):
            error.filename = str(error.filename).replace(str(partial), asked_for)  # which the user knows
        raise
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # not there, or another error hides what went wrong
                partial.unlink()


def is_partial(path: str) -> bool:
    """Whether a path is one that `atomically` yields, or lies in one."""
    return any(part.startswith(".") and part.endswith(".partial") for part in path.split("/"))


def copy_tree(source: Path, target: Path) -> None:
    """Copies a directory. Raises Unfinished if a file cannot be read or written."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as error:  # which has lost what kind of errors they were
        place, _, reason = error.args[0][0]
        reason = reason.partition("] ")[2].partition(": ")[0]  # without names, of which one may be partial
        raise Unfinished(f"{place} cannot be copied: {reason}; run the same command again") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file."""
    with atomically(path) as partial:
        partial.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Writes an indented JSON file. NaN, which JSON lacks, becomes null."""
    text = json.dumps(_null_for_nan(value), indent=2, ensure_ascii=False, allow_nan=False)
    with atomically(path) as partial:
        # A file name that is not UTF-8 holds lone surrogates; as backslash escapes they are valid JSON.
        partial.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def synchronize(path: Path) -> None:
    """Syncs a file, or all files below a directory, to disk, so that their content survives a power cut."""
    for file in [path, *path.rglob("*")]:
        if file.is_file() and not file.is_symlink():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _null_for_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _null_for_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_null_for_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
