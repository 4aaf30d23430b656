"""Lines that must neither be lost in a buffer nor end the process that writes them."""

import contextlib
import os


def write_error(text: str) -> None:
    """Writes to stderr, past Python's buffers; does nothing if its reader has gone.

    `tee` ends by the same Ctrl-C as the run whose output it reads, and a run is ended long after its terminal
    was closed: an exception here would keep it from saving, or from ending.
    """
    # Not `print`: a signal may arrive inside a print call, which cannot be entered again.
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
