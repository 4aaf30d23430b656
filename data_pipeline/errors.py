"""What means "the user's input or machine is wrong", as opposed to a defect of ours."""

import errno

# The path is missing, of the wrong kind, or not permitted. Every other errno is a failure of the storage.
_OF_THE_USER = {
    *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL),
}


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
        return Unfinished(f"{path}: {error.strerror}; run the same command again")
    return UserError(message)


def may_pass(error: BaseException) -> bool:
    """Whether the same command may succeed if run again: a disk or a network failed, not the input."""
    failed = isinstance(error, OSError) and error.errno is not None and error.errno not in _OF_THE_USER
    return failed or isinstance(error, Unfinished)
