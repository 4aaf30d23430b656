"""Leases: which worker does a job, agreed upon through files or objects that all workers share.

A lease is renewed by its owner. A worker that no longer renews it is dead: another one then takes the lease,
which only one can, and the job is its own. Nobody compares clocks: a worker waits until it has itself seen a
lease unchanged for long enough, so that clocks may differ or run backwards.
"""

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from bert_jax.exit_status import MAY_PASS, write_error
from bert_jax.parallel.lease_store import LeaseFiles, LeaseObjects, store_of
from data_pipeline.errors import UserError

SECONDS_BETWEEN_RENEWALS = 5.0
SECONDS_UNTIL_FREE = 60.0
"""A lease that was not renewed for this long is free."""
# Of waiting for a job: short at first, then longer, as each try reads the store, which may be a bucket.
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0


class Owner(NamedTuple):
    """The process that has a job."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"


def end_process() -> None:
    """Ends the process, whose work another one has taken over, before it writes anything more."""
    write_error(
        "bert-jax: error: another process took this work over, or the one that started this has ended\n"
    )
    os._exit(MAY_PASS)


class Leases:
    """The leases of one worker in a directory that it shares with others."""

    def __init__(
        self,
        place: Path | LeaseFiles | LeaseObjects,
        *,
        seconds_between_renewals: float = SECONDS_BETWEEN_RENEWALS,
        parent: int | None = None,
    ) -> None:
        """
        Args:
          place: the directory, or where else its leases lie.
          seconds_between_renewals: of a lease.
          parent: the process that started this one, if a lease also counts as lost when that is gone, for
            workers that nobody would stop otherwise.
        """
        self._parent = parent
        self._store = store_of(place) if isinstance(place, Path) else place
        self._seconds_between_renewals = seconds_between_renewals
        self._owner = this_owner()
        self._seen: dict[str, tuple[tuple[int, str], float]] = {}

    @contextlib.contextmanager
    def hold(self, job: PurePosixPath) -> Iterator[bool]:
        """Inside the block this worker has the job, by its path, if it was free: yields whether it was.

        If the lease is lost, the process ends.
        """
        name = "--".join(job.parts)
        number = self._take(name)
        if number is None:
            yield False
            return
        held = [number]
        ended = threading.Event()
        renewals = threading.Thread(target=self._renew_until, args=(name, held, ended), daemon=True)
        renewals.start()
        try:
            yield True
        finally:
            ended.set()
            renewals.join()
            # If this fails, the lease becomes free once it has not been renewed for long enough.
            with contextlib.suppress(OSError, UserError):
                self._store.renew(name, held[0], self._lease(ended=True))

    @contextlib.contextmanager
    def hold_when_free(self, job: PurePosixPath) -> Iterator[None]:
        """As `hold`, but waits until this worker has the job."""
        wait = _FIRST_WAIT
        while True:
            with self.hold(job) as has:
                if has:
                    yield
                    return
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def owner(self, job: PurePosixPath) -> Owner | None:
        """Who has a job, as far as can be told at one look; None if it is free."""
        name = "--".join(job.parts)
        newest = self._store.newest(name)
        if newest is None or self._is_free(name, newest):
            return None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            lease = json.loads(newest[1])
            return Owner(lease["host"], lease["pid"])
        return None

    def _take(self, name: str) -> int | None:
        newest = self._store.newest(name)
        if newest is not None and not self._is_free(name, newest):
            return None
        return self._store.take(name, newest[0] if newest else 0, self._lease(ended=False))

    def _is_free(self, name: str, newest: tuple[int, str]) -> bool:
        """Whether a lease is given back, its process is gone, or it has not changed for long enough."""
        # The text is incomplete while its owner writes it, or if the owner died while writing.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            lease = json.loads(newest[1])
            if lease["ended"] or is_gone(lease):
                return True
        before, since = self._seen.get(name, (None, 0.0))
        if before != newest:
            self._seen[name] = newest, time.monotonic()
            return False
        return time.monotonic() > since + SECONDS_UNTIL_FREE

    def _renew_until(self, name: str, held: list[int], ended: threading.Event) -> None:
        """Renews a lease, whose number is in `held`, until `ended`."""
        while not ended.wait(self._seconds_between_renewals):
            # A full disk, or storage that is gone for a moment, is left to the next time.
            with contextlib.suppress(OSError, UserError):
                renewed = None
                if self._parent in (None, os.getppid()):
                    renewed = self._store.renew(name, held[0], self._lease(ended=False))
                if renewed is None:
                    end_process()
                    return
                held[0] = renewed

    def _lease(self, *, ended: bool) -> str:
        return json.dumps({**self._owner, "renewal": time.monotonic_ns(), "ended": ended})


def this_owner() -> dict[str, Any]:
    """What a lease says of this process."""
    return {
        "owner": secrets.token_hex(8),
        "host": platform.node(),
        "boot": _boot(),
        "pid": os.getpid(),
        "process_began": _process_began(os.getpid()),
    }


def _boot() -> str:
    """Tells one start of this machine, or of a container on it, from others; empty where that is not known.

    A process id means something inside one of them alone.
    """
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _process_began(pid: int) -> str:
    """When a process of this machine began, in clock ticks since the machine did; empty if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        state, *numbers = stat.rpartition(")")[2].split()
        return "" if state == "Z" else numbers[18]
    return ""


def is_gone(lease: dict[str, Any]) -> bool:
    """Whether the process of a lease is one of this machine, and has ended."""
    if not lease["boot"] or (lease["host"], lease["boot"]) != (platform.node(), _boot()):
        return False
    return _process_began(lease["pid"]) != lease["process_began"]
