"""Directories to work in and to write to: given as a path, not a URL; locked; and removed if nothing came."""

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from data_pipeline.errors import InUseError, UserError

# `Path` merges the two slashes of a URL into one.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(.+)")

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def check_path(path: str | Path, what: str) -> None:
    """Raises UserError if `path` is a URL, such as a bucket's, which would become a directory named `gs:`, or
    is not UTF-8, which pyarrow cannot open.

    Args:
      what: what the path is in the command, such as "--output", for the message.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UserError(f"{what} {str(path)!r} is not UTF-8; give it another name") from None
    url = _URL.fullmatch(str(path))
    if url:
        raise UserError(
            f"{what} {url[1]}://{url[2]} is not a directory; mount the bucket (gcsfuse for gs://) and name "
            f"where it is mounted"
        )


def follow_links(path: Path) -> Path:
    """The absolute path that `path` leads to. Raises UserError if its links lead back to themselves."""
    try:
        path.stat()
    except OSError as error:  # it need not exist
        if error.errno == errno.ELOOP:
            raise UserError(f"{path} is a link that leads back to itself; name another path") from None
    return path.resolve()


def check_new_file(path: Path) -> None:
    """Raises UserError if what is to be made, a file or a directory, exists, is a URL, or cannot be made."""
    check_writable(path, "--output")
    if path.exists():
        raise UserError(f"--output {path} exists; name another one, or remove it first")


def check_writable(path: Path, what: str) -> None:
    """Raises UserError if a file or a directory, which need not exist, can be neither made nor written to.

    Args:
      what: as for `check_path`.
    """
    check_path(path, what)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if nearest != path and not nearest.is_dir():
        raise UserError(f"{what} {path} cannot be made: {nearest} is a file")
    if not os.access(nearest, os.W_OK):
        place = "it" if nearest == path else nearest
        raise UserError(f"{what} {path} cannot be used: {place} may not be written to")


@contextlib.contextmanager
def directory_of(output: Path) -> Iterator[None]:
    """Makes the parent directories of `output`; removes those that are new if the block leaves no output."""
    missing = [directory for directory in output.parents if not directory.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if not output.exists():
            with contextlib.suppress(OSError):  # not empty: another process has put a file there meanwhile
                for directory in missing:
                    directory.rmdir()


def lock_file(file: IO[str], directory: Path, busy: str) -> None:
    """Locks an open file of `directory` until it is closed; the lock of a process that dies is released.

    Raises:
      InUseError: another process has the lock; `busy` is the message.
      UserError: the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUseError(busy) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise UserError(
            f"the file system of {directory} has no locks ({error.strerror}); name a directory elsewhere, or "
            f"mount it with locks"
        ) from None
