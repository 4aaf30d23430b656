"""What means "the user's input or machine is wrong", as opposed to a defect of ours."""

import errno

# What is named is not there, is of another kind, or is not allowed. Everything else is the storage's.
_OF_THE_USER = {
    *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EINVAL),
}


class UserError(ValueError):
    """Bad input: the message is one line that names the thing and says what would be valid.

    The command line prints it to stderr without a traceback and exits with status 2.
    """


class Unfinished(UserError):
    """What was done so far is whole, and the same command resumes from there: status 69."""


def bad_input(error: Exception, path: object, message: str) -> Exception:
    """What to raise where a file cannot be read: UserError(message), or if the storage failed, Unfinished.

    A read that fails does not name its file: `path` does.
    """
    if not may_pass(error):
        return UserError(message)
    if isinstance(error, OSError):
        return Unfinished(f"{path}: {error.strerror}; run the same command again")
    return error


def may_pass(error: BaseException) -> bool:
    """Whether the same command may succeed another time: a disk or a network has failed, not its input."""
    failed = isinstance(error, OSError) and error.errno is not None and error.errno not in _OF_THE_USER
    return failed or isinstance(error, Unfinished)
