"""Reports an error: one line on stderr, and the exit status."""

import os
import sys
import traceback

from bert_jax import exit_status
from data_pipeline.errors import UserError, may_pass


def report(error: BaseException) -> int:
    """Prints one line and returns the exit status; an unexpected exception is printed with its traceback."""
    status = exit_status.MAY_PASS if may_pass(error) else exit_status.BAD_INPUT
    match error:
        case UserError():
            return _complain(str(error), status=status)
        case BrokenPipeError():
            # The reader of our output, such as `head`, has closed it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            again = "; run the same command again" if may_pass(error) else ""
            return _complain(f"{place}{reason}{again}", status=status)
        case KeyboardInterrupt():
            return _complain(
                "interrupted before there was anything to save", status=exit_status.NOTHING_SAVED
            )
    traceback.print_exception(error)
    return exit_status.FAILED


def _complain(message: str, *, status: int) -> int:
    print(f"bert-jax: error: {' '.join(message.split())}", file=sys.stderr)
    return status
