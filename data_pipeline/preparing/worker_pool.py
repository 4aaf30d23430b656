"""Worker processes that end when their parent ends, however it does, and leave Ctrl-C to the parent."""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from data_pipeline.errors import Unfinished
from data_pipeline.interrupts import interrupts_deferred

T = TypeVar("T")


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Yields a pool of freshly started processes; an exception in the block stops them at once.

    Raises Unfinished if the system killed one of them.
    """
    # Started now, because starting it later, together with a worker, would unblock Ctrl-C for that worker.
    multiprocessing.resource_tracker.ensure_running()
    pool = _Pool(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        yield pool
    except concurrent.futures.process.BrokenProcessPool:
        raise Unfinished(
            "a worker process ended, perhaps for want of memory; run the same command again to resume, with "
            "fewer --workers if the command has that flag (a script must call this under "
            '`if __name__ == "__main__":`)'
        ) from None
    except BaseException:
        pool.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(futures: Iterable[concurrent.futures.Future[T]], ahead: int) -> Iterator[T]:
    """Yields results in the order of their futures; takes at most `ahead` beyond the one it waits for.

    `futures` may submit each piece of work as it is asked for, so that memory is bounded.
    """
    under_way = collections.deque[concurrent.futures.Future[T]]()
    for future in futures:
        under_way.append(future)
        if len(under_way) > ahead:
            yield under_way.popleft().result()
    for future in under_way:
        yield future.result()


class _Pool(concurrent.futures.ProcessPoolExecutor):
    """A pool whose workers never see Ctrl-C: they inherit the signal blocked.

    Ignoring it in the worker itself would come too late: until a worker has imported this module, a
    Ctrl-C would end it with a traceback. `submit` is what starts the workers and the thread that serves
    them, so Ctrl-C cannot interrupt it half-way.
    """

    def submit(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future:
        with interrupts_deferred():
            return super().submit(*args, **kwargs)

    def terminate(self) -> None:
        """Ends the workers at once, as `terminate_workers` does from Python 3.14 on."""
        for process in list((self._processes or {}).values()):
            process.terminate()


def _start_worker() -> None:
    # The processes are the parallelism; threads of the tokenizer would only compete for the same cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Waits for the parent to end, then ends this worker.

    The pool's queue would never close for a worker whose parent was killed, since the worker holds both ends.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
