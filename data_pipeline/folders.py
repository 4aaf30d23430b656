"""What a folder must allow for a process to work in it: it is reached by a path, and it can be locked."""

import errno
import fcntl
import re
from pathlib import Path
from typing import IO

from data_pipeline.errors import UserError

# A Path has one slash of the two.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(.+)")

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def check_path(path: str | Path, what: str) -> None:
    """Raises UserError if `path` is a URL, such as a bucket's: it would become a folder named `gs:`.

    Args:
      what: the path's part in the command, for the message.
    """
    url = _URL.fullmatch(str(path))
    if url:
        raise UserError(
            f"{what} {url[1]}://{url[2]} is not a folder; mount the bucket (gcsfuse for gs://) and name "
            f"where it is mounted"
        )


def lock_file(file: IO[str], folder: Path, busy: str) -> None:
    """Locks an open file of `folder` until it is closed; the lock of a dead process does not count.

    Raises:
      UserError: another process has the lock (`busy` is the message), or the file system has none.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(busy) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise UserError(
            f"the file system of {folder} has no locks ({error.strerror}); name a folder on another one, "
            f"or mount it with locks"
        ) from None
