"""SIGTERM and Ctrl-C as a request that the loop answers between two steps."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import ClassVar

from bert_jax.exit_status import write_error
from data_pipeline.interrupts import handled

_SHOW_CURSOR = "\x1b[?25h"  # the progress display has hidden it, and may not live to show it again
_SECONDS_UNTIL_READERS_END = 0.1


class Interrupted(Exception):
    """The run was asked to stop, and has stopped."""


class Interrupt:
    """Whether somebody asked the run to stop, and with which signal."""

    num_requests: ClassVar[int] = 0
    """How many signals this process has noted, also those that came too late to stop a run."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def requested(self) -> bool:
        """Whether to stop now; asked after every step, and after every batch of an evaluation."""
        return self.signal_name is not None

    def check(self) -> None:
        """Raises Interrupted if it is time to stop."""
        if self.requested():
            raise Interrupted

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal_name is not None:  # SIGTERM after Ctrl-C asks for the same
            return
        self.signal_name = signal.Signals(number).name
        Interrupt.num_requests += 1
        # A second Ctrl-C must end a run that does not answer the first.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        line = f"{self.signal_name}: saving after this step; Ctrl-C now ends at once, without saving\n"
        answer(_SHOW_CURSOR * sys.stdout.isatty() + line)


def answer(text: str) -> None:
    """Writes to stderr how a signal is answered, and makes sure that later output does not end the process.

    A reader such as `tee` may have ended by the same Ctrl-C. The next line that is printed would then raise
    BrokenPipeError before the run has saved, so from here on output without a reader goes nowhere.
    """
    write_error(text)
    time.sleep(_SECONDS_UNTIL_READERS_END)
    outputs = select.poll()
    for output in (1, 2):
        outputs.register(output, 0)  # only errors, of which one is that the reader has gone
    for output, _ in outputs.poll(0):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


@contextlib.contextmanager
def listen() -> Iterator[Interrupt]:
    """Inside the block SIGTERM and the first SIGINT are noted instead of ending the process."""
    interrupt = Interrupt()
    with handled({signal.SIGTERM: interrupt._note, signal.SIGINT: interrupt._note}):
        yield interrupt
