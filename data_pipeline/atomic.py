"""Files and folders that appear whole or not at all: made under another name beside, then renamed."""

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """A free name beside `path`; the file or folder that the block makes there becomes `path`.

    Its content is on the disk before it has the name, so a power cut leaves it whole or not there.
    If the block fails nothing is left of it, and `path` is as it was; a process that is killed leaves the
    hidden one. Several processes may do so at once: the last one's stays. A folder takes the place of no
    other that holds anything. What cannot be replaced, such as /dev/stdout when it is a pipe, is written as
    it is.
    """
    asked_for = str(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    path = path.resolve()  # a link stays, what it points to is replaced
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield partial
        synchronize(partial)
        partial.replace(path)
    except OSError as error:
        if error.filename == str(partial):
            error.filename = asked_for  # which the user knows
        raise
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file."""
    with atomically(path) as partial:
        partial.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, indented. JSON has no NaN; null stands for it."""
    text = json.dumps(_null_for_nan(value), indent=2, ensure_ascii=False, allow_nan=False)
    with atomically(path) as partial:
        # A name that is not UTF-8 holds lone surrogates; as backslash escapes they are JSON's own.
        partial.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def synchronize(path: Path) -> None:
    """Puts what is in a file, or in the files of a folder, on the disk: a power cut does not take it."""
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
