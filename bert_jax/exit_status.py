"""With which statuses commands end, for launchers and scripts; each is also in `bert-jax --help`."""

import os

FAILED = 1
"""Training met NaN or infinity, a step does not fit the chip, or a defect of ours, with its traceback."""
BAD_INPUT = 2
"""What was asked for cannot be done: one line says what would be valid."""
MAY_PASS = os.EX_UNAVAILABLE
"""69: a disk failed, or another process is gone or never came; run the same command again, on all hosts."""
SAVED = os.EX_TEMPFAIL
"""75: interrupted, and what was done is kept; run the same command again to resume."""
NOTHING_SAVED = 130
"""Ctrl-C before there was anything to keep, as shells report it."""
