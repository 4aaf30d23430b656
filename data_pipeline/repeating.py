"""Something done again and again while a block runs."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from data_pipeline.errors import UserError


@contextlib.contextmanager
def repeated(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Calls `action` in another thread every so many seconds inside the block.

    A failure of the disk, of a bucket or of the network is left to the next time.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            with contextlib.suppress(OSError, UserError):
                action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
