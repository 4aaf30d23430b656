"""Handlers of signals for the time of a block."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


@contextlib.contextmanager
def handled(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Inside the block these handlers answer these signals."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defers Ctrl-C, and SIGTERM if it has a handler, until the block ends.

    The mask blocks Ctrl-C in this thread and in what it starts; other threads can still receive the signal,
    and Python then runs its handler in this one. So the handlers are replaced too. SIGTERM is not blocked,
    because workers would inherit that, and SIGTERM is what ends them.
    """
    seen: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Only the main thread runs handlers, and may set them.
    is_main = threading.current_thread() is threading.main_thread()
    put_off = [number for number, handler in handlers.items() if is_main and callable(handler)]
    with handled(dict.fromkeys(put_off, lambda number, frame: seen.append(number))):
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for taken in seen:
        signal.raise_signal(taken)
