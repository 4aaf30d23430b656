"""Ends a run that no longer makes steps, so that whoever started it can start it again.

A device, an exchange between processes or a file system may never answer. Where several processes train, one
that hangs stops all of them within a few steps, so that each finds out by itself.
"""

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Iterator, Mapping

from bert_jax.exit_status import MAY_PASS, write_error
from bert_jax.parallel import processes

_VARIABLE = "BERT_JAX_HANG_SECONDS"
# More than compiling a large model takes.
_DEFAULT_SECONDS = 1800
_LOOKS = 20
"""How often the watchdog looks before it takes the run for one that hangs."""


class Watchdog:
    """Notices that a run hangs: for so many seconds no further step was reported. See `watch`."""

    def __init__(self, seconds: int, step: int) -> None:
        self._seconds = seconds
        self._step = step
        self._reported = False
        self._paused = False
        self._over = threading.Event()

    def report(self, step: int) -> None:
        """Notes that so many steps are done."""
        self._step, self._reported = step, True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside the block nothing is expected, as in an evaluation, which takes as long as it takes."""
        self._paused = True
        try:
            yield
        finally:
            self._reported, self._paused = True, False

    def run(self) -> None:
        """Looks, in a thread of its own, until `stop`; ends the process if the run hangs."""
        # Looks are counted, not seconds: a process that was suspended is not taken for one that hangs.
        left = _LOOKS
        while not self._over.wait(self._seconds / _LOOKS):
            left = _LOOKS if self._reported or self._paused else left - 1
            self._reported = False
            processes.publish_step(self._step)
            if left == 0:
                self._end()

    def stop(self) -> None:
        """Ends `run`."""
        self._over.set()

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # its reader may have gone
            sys.stdout.flush()
        faulthandler.dump_traceback(all_threads=True)
        message = describe(self._seconds, self._step, processes.published_steps())
        write_error(f"bert-jax: error: {message}\n")
        # The other processes hang too; without this one they would be ended before they said where.
        self._over.wait(self._seconds / _LOOKS)
        os._exit(MAY_PASS)


@contextlib.contextmanager
def watch(step: int) -> Iterator[Watchdog]:
    """Inside the block the process ends with status 69 if no step is reported for too long.

    Before that the stacks of all threads go to standard error. BERT_JAX_HANG_SECONDS in the environment says
    how long that is; 0 turns it off.

    Raises:
      UserError: the environment variable is no whole number.
    """
    seconds = processes.number_from(_VARIABLE, _DEFAULT_SECONDS)
    watchdog = Watchdog(seconds, step)
    if seconds:
        threading.Thread(target=watchdog.run, name="watchdog", daemon=True).start()
    try:
        yield watchdog
    finally:
        watchdog.stop()


def describe(seconds: int, step: int, steps: Mapping[int, int]) -> str:
    """One line on a run that hangs.

    Args:
      seconds: how long no step was reported.
      step: steps that this process has done.
      steps: number of a process -> its steps, as far as they are known.
    """
    behind = sorted(process for process, done in steps.items() if done < max(steps.values()))
    those = f"; process {', '.join(map(str, behind))} is behind the others" if behind else ""
    return (
        f"no step in {seconds} s, after step {step}{those}; the stacks of this process are above; "
        f"run the same command again, with a higher {_VARIABLE} if steps take that long"
    )
