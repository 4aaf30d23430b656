"""What went wrong, in one line on stderr, and the exit status that says so."""

import os
import sys
import traceback

from bert_jax import exit_status
from data_pipeline.errors import UserError, may_pass


def report(error: BaseException) -> int:
    """Prints the line and returns the status; a defect of ours is printed with its traceback."""
    status = exit_status.MAY_PASS if may_pass(error) else exit_status.BAD_INPUT
    match error:
        case UserError():
            return _complain(str(error), status=status)
        case BrokenPipeError():
            # Whoever read our output, `head` for one, has enough.
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
