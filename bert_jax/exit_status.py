"""Exit statuses of the commands, for launchers and scripts; `bert-jax --help` lists them too."""

import os

FAILED = 1
"""Training met NaN or infinity, a step does not fit the chip, or a bug in bert-jax (with a traceback)."""
BAD_INPUT = 2
"""Bad input: a one-line message says what would be valid."""
MAY_PASS = os.EX_UNAVAILABLE
"""69: a disk failed, or another process is gone or never came; run the same command again, on all hosts."""
SAVED = os.EX_TEMPFAIL
"""75: interrupted, with the progress saved; run the same command again to resume."""
NOTHING_SAVED = 130
"""Ctrl-C before there was anything to save; the status that shells report for it."""
