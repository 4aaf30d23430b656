"""Ctrl-C as a KeyboardInterrupt that arrives, instead of one that Python or a library loses."""

import signal
from types import FrameType

_SECONDS_BETWEEN_TRIES = 0.05


def listen() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt in the main thread, where that cannot be lost.

    Inside an import it would abort half-made C++ modules, or be counted as not handled; inside jax's callback
    of Python's garbage collector it would be printed and dropped. There it waits until the code is done.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_interrupt)


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Handles a signal: raises KeyboardInterrupt, now or as soon as it can arrive."""
    if _would_be_lost(frame):
        signal.signal(signal.SIGALRM, raise_interrupt)
        # Not once: an alarm just before a system call that blocks would not end it.
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_BETWEEN_TRIES, _SECONDS_BETWEEN_TRIES)
        return
    if number == signal.SIGALRM:
        signal.setitimer(signal.ITIMER_REAL, 0)
    raise KeyboardInterrupt


def _would_be_lost(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "_xla_gc_callback":
            return True
        frame = frame.f_back
    return False
