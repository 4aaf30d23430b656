"""Where leases lie: in files of a directory that all workers see, or in objects of a bucket.

A lease has a number, which tells whether another worker has taken it.
"""

import contextlib
import errno
import glob
import json
import os
from pathlib import Path

from data_pipeline.atomic import atomically
from data_pipeline.bucket import BucketDirectory
from data_pipeline.stand_in import bucket_of

_TAKEN = (errno.EEXIST, errno.ESTALE)  # the latter where another worker made a bucket's object meanwhile


def store_of(directory: Path) -> "LeaseFiles | LeaseObjects":
    """The store in a directory; in the bucket, if its parent stands for a directory of one."""
    bucket = bucket_of(directory.parent)
    return LeaseFiles(directory) if bucket is None else LeaseObjects(bucket / directory.name)


class LeaseFiles:
    """A text for each job, its lease: a file whose name ends in the number.

    The two operations that need care are a write that succeeds only if there is no such file, and a plain
    write, which a rename follows. Cloud Storage FUSE has them for a bucket's objects; it has no hard links.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def newest(self, name: str) -> tuple[int, str] | None:
        """Number and text of a job's lease, or None if it never had one."""
        number = self._newest_number(name)
        if number is None:
            return None
        try:
            return number, self._path(name, number).read_text(encoding="utf-8")
        except OSError:
            return number, ""  # just replaced by the next one

    def take(self, name: str, after: int, text: str) -> int | None:
        """Makes a lease the caller's, if its number is still `after`, 0 for none.

        Returns its new number, or None if another worker was first.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        number = after + 1
        path = self._path(name, number)
        try:
            file = path.open("x", encoding="utf-8")
        except OSError as error:
            if error.errno in _TAKEN:
                return None
            raise
        try:
            with file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # what makes a bucket's object
        except OSError as error:
            if error.errno in _TAKEN:
                return None
            path.unlink(missing_ok=True)
            raise
        if (self._newest_number(name) or 0) > number:
            # Since this worker looked, others had the job and removed the file of this number.
            path.unlink(missing_ok=True)
            return None
        for older in self._numbers(name):
            if older < number:
                self._path(name, older).unlink(missing_ok=True)
        return number

    def renew(self, name: str, number: int, text: str) -> int | None:
        """Replaces the text of the caller's lease; returns its number, or None if it is another worker's."""
        if self._newest_number(name) not in (None, number):
            return None
        with atomically(self._path(name, number)) as partial:
            partial.write_text(text, encoding="utf-8")
        return number

    def _newest_number(self, name: str) -> int | None:
        return max(self._numbers(name), default=None)

    def _numbers(self, name: str) -> list[int]:
        found = self._directory.glob(f"{glob.escape(name)}.[0-9]*")
        return [int(path.suffix[1:]) for path in found if path.stem == name]

    def _path(self, name: str, number: int) -> Path:
        return self._directory / f"{name}.{number}"


class LeaseObjects:
    """As `LeaseFiles`, with an object for each lease; its number is its generation, which renewals change."""

    def __init__(self, directory: BucketDirectory) -> None:
        self._directory = directory

    def newest(self, name: str) -> tuple[int, str] | None:
        found = self._directory.read(name)
        return found and (found[1], found[0].decode(errors="replace"))

    def take(self, name: str, after: int, text: str) -> int | None:
        return self._directory.write(name, text.encode(), after)

    def renew(self, name: str, number: int, text: str) -> int | None:
        renewed = self._directory.write(name, text.encode(), number)
        newest = self.newest(name) if renewed is None else None
        if newest is None or _owner(newest[1]) != _owner(text):
            return renewed
        # The caller's own renewal before this one, whose answer was lost.
        return self._directory.write(name, text.encode(), newest[0])


def _owner(text: str) -> str:
    """The owner that a lease names; empty if it cannot be read."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["owner"])
    return ""
