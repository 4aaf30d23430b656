"""What means "the user's input or machine is wrong", as opposed to a defect of ours."""

import errno

# The path is missing, of the wrong kind, or not permitted. Every other errno is a failure of the storage.
_OF_THE_USER = {
    *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL),
}


# What a failed write, which does not name its file, says of a disk without room.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class UserError(ValueError):
    """Bad input: the message is one line that names the thing and says what would be valid.

    The command line prints it to stderr without a traceback and exits with status 2.
    """


class InUseError(UserError):
    """Another process has the lock of what this one needs."""


class Unfinished(UserError):
    """Interrupted work that was kept intact; the same command resumes it. Exit status 69."""


def bad_input(error: Exception, path: object, message: str) -> Exception:
    """Returns the exception to raise where a file cannot be read.

    That is UserError(message) for wrong input, and Unfinished if the storage failed, whose message names
    `path`, because the error of a failed read does not name the file. A UserError is returned as it is.
    """
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError) and may_pass(error):
        return Unfinished(describe_failure(error, path))
    return UserError(message)


def describe_failure(error: OSError, path: object = None) -> str:
    """One line on a failure of the storage, and what to do.

    Args:
      path: the file, if the error does not name it.
    """
    place = error.filename or path
    room = "make room and " if has_no_room(error) else ""
    return f"{f'{place}: ' if place else ''}{error.strerror}; {room}run the same command again"


def has_no_room(error: OSError) -> bool:
    """Whether a file could not be written for want of room."""
    return error.errno in _NO_ROOM


def may_pass(error: BaseException) -> bool:
    """Whether the same command may succeed if run again: a disk or a network failed, not the input."""
    failed = isinstance(error, OSError) and error.errno is not None and error.errno not in _OF_THE_USER
    return failed or isinstance(error, Unfinished)
