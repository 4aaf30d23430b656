"""Exit statuses of the commands, for launchers and scripts, and the line that says what went wrong."""

import contextlib
import os
import sys
import traceback

from data_pipeline.errors import UserError, describe_failure, may_pass

FAILED = 1
"""NaN or infinity in training, a failed run of a study, a step that does not fit the chip, a reader of the
output (such as `head`) that ended first, or a bug in bert-jax (with a traceback)."""
BAD_INPUT = 2
"""Bad input: a one-line message says what would be valid."""
MAY_PASS = os.EX_UNAVAILABLE
"""69: a disk failed, or another process is gone or never came; run the same command again, on all hosts."""
SAVED = os.EX_TEMPFAIL
"""75: interrupted, with the progress saved; run the same command again to resume."""
NOTHING_SAVED = 130
"""Ctrl-C before there was anything to save; the status that shells report for it."""


def report(error: BaseException) -> int:
    """Prints one line and returns the exit status; an unexpected exception is printed with its traceback."""
    status = MAY_PASS if may_pass(error) else BAD_INPUT
    match error:
        case UserError():
            return _complain(str(error), status)
        case BrokenPipeError():
            # What is still buffered is written when Python ends, and would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED  # as rich does
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            return _complain(describe_failure(error) if may_pass(error) else f"{place}{reason}", status)
        case KeyboardInterrupt():
            return _complain("interrupted before there was anything to save", NOTHING_SAVED)
    traceback.print_exception(error)
    return FAILED


def write_error(text: str) -> None:
    """Writes to stderr, past Python's buffers; does nothing if its reader has gone.

    `tee` ends by the same Ctrl-C as the run whose output it reads, and a run is ended long after its terminal
    was closed: an exception here would keep it from saving, or from ending.
    """
    # Not `print`: a signal may arrive inside a print call, which cannot be entered again.
    with contextlib.suppress(OSError):
        os.write(2, text.encode())


def _complain(message: str, status: int) -> int:
    try:
        print(f"bert-jax: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    except BrokenPipeError:  # the status says it, too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return status
