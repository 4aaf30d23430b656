"""Batches made and put on the devices by a background thread, ahead of the step that needs them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

_BATCHES_READY = 2


class Prefetch:
    """Host batches that `put` has moved to the devices, in order; measures how long these waited for one.

    Waiting is counted only from the moment the devices have finished everything they were given:
    a host that waits while its devices still compute costs nothing.
    """

    def __init__(
        self,
        batches: Iterator[Mapping[str, np.ndarray]],
        put: Callable[[Mapping[str, np.ndarray]], Any],
    ) -> None:
        self._seconds_waited = 0.0
        self._batches = batches
        self._put = put
        self._ready: queue.Queue = queue.Queue(maxsize=_BATCHES_READY)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True, name="prefetch")
        self._thread.start()

    def next(self, under_way: jax.Array) -> Any:
        """The next device batch; raises any exception that making it raised.

        Args:
          under_way: an array that is ready once the devices have nothing left to do.

        Raises:
          StopIteration: there is no further batch.
        """
        try:
            item = self._ready.get_nowait()
        except queue.Empty:
            jax.block_until_ready(under_way)
            began = time.perf_counter()
            item = self._ready.get()
            self._seconds_waited += time.perf_counter() - began
        if isinstance(item, BaseException):
            raise item
        return item

    def take_seconds_waited(self) -> float:
        """How long the devices waited since this was last asked."""
        waited, self._seconds_waited = self._seconds_waited, 0.0
        return waited

    def close(self) -> None:
        """Ends the thread; drops the batches that were held ready."""
        self._stopped.set()
        self._thread.join()

    def _fill(self) -> None:
        try:
            for batch in self._batches:
                if not self._offer(self._put(batch)):
                    return
            self._offer(StopIteration())
        except BaseException as error:  # the loop's thread raises it
            self._offer(error)

    def _offer(self, item: Any) -> bool:
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
