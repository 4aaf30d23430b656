"""What went wrong, in one line on stderr, and the exit status that says so."""

import os
import sys
import traceback

from data_pipeline.errors import Unfinished, UserError


def report(error: BaseException) -> int:
    """Prints the line and returns the status; a defect of ours is printed with its traceback."""
    match error:
        case Unfinished():
            return _complain(str(error), status=os.EX_UNAVAILABLE)
        case UserError():
            return _complain(str(error), status=2)
        case BrokenPipeError():
            # Whoever read our output, `head` for one, has enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            return _complain(f"{place}{reason}", status=2)
        case KeyboardInterrupt():
            return _complain("interrupted before there was anything to save", status=130)
    traceback.print_exception(error)
    return 1


def _complain(message: str, *, status: int) -> int:
    print(f"bert-jax: error: {' '.join(message.split())}", file=sys.stderr)
    return status
