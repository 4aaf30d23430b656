"""Worker processes that end with their parent, however it ends, and leave Ctrl-C to it."""

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
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
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
    )
    try:
        yield pool
    except concurrent.futures.process.BrokenProcessPool:
        raise WorkerKilled(
            "a worker process was killed, perhaps for want of memory; "
            "run the same command again to go on, with fewer --workers"
        ) from None
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class WorkerKilled(UserError):
    """What was done so far is whole, and the same command goes on from there."""


def count_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Every process here works alone; threads of the tokenizer would only fight for the same cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """The pool's queue never closes for a worker whose parent was killed, since it holds both ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
