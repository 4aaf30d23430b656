"""Worker processes that end with their parent, however it ends, and leave Ctrl-C to it."""

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import threading
from collections.abc import Iterator

from data_pipeline.errors import UserError


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """A pool of fresh processes; leaving it by an exception stops them at once.

    Raises UserError if the system killed one of them.
    """
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=_WorkerContext(), initializer=_start_worker
    )
    try:
        yield pool
    except concurrent.futures.process.BrokenProcessPool:
        raise WorkerKilled(
            "a worker process was killed, perhaps for want of memory; "
            "run the same command again to go on, with fewer --workers"
        ) from None
    except BaseException:
        for process in multiprocessing.active_children():
            if isinstance(process, _Worker):
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class WorkerKilled(UserError):
    """What was done so far is whole, and the same command goes on from there."""


def count_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker(multiprocessing.context.SpawnProcess):
    """A process that never sees Ctrl-C: it inherits the signal blocked.

    Ignoring the signal in the process itself would come too late: until it has imported this
    module, a Ctrl-C would end it with a traceback.
    """

    def start(self) -> None:
        # Starting the tracker lifts the block, so it has to run before.
        multiprocessing.resource_tracker.ensure_running()
        with _interrupt_deferred():
            super().start()


@contextlib.contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Ctrl-C waits until the block ends: a process left half started would end with a traceback.

    The mask holds for this thread and for what it starts. Other threads can still take the signal,
    and Python then runs the handler here; so that is put off too.
    """
    seen: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if seen:
        signal.raise_signal(signal.SIGINT)


class _WorkerContext(multiprocessing.context.SpawnContext):
    Process = _Worker


def _start_worker() -> None:
    # Every process here works alone; threads of the tokenizer would only fight for the same cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """The pool's queue never closes for a worker whose parent was killed, since it holds both ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
