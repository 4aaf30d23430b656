"""Leases: which worker does a job, agreed upon through files in a directory that all workers share.

A lease is a file that its owner renews. A worker that no longer renews it is dead: another one then makes the
file of the next generation, which only one can make, and the job is its own. Nobody compares clocks: a worker
waits until it has itself seen a lease unchanged for long enough, so that clocks may differ or run backwards.

The two operations that need care are in `_create` and `_renew`: a write that succeeds only if there is no
such file, and a plain write. Cloud Storage FUSE has both for a bucket's objects; it has no hard links.
"""

import contextlib
import errno
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from bert_jax.exit_status import MAY_PASS
from data_pipeline.atomic import write_json

SECONDS_BETWEEN_RENEWALS = 5.0
SECONDS_UNTIL_FREE = 60.0
"""A lease that was not renewed for so long is its owner's no more."""
_SECONDS_BETWEEN_TRIES = 0.1


def end_process() -> None:
    """Ends the process, whose work another one has taken over, before it writes anything more."""
    os._exit(MAY_PASS)


class Leases:
    """The leases of one worker in a directory that it shares with others."""

    def __init__(
        self,
        directory: Path,
        *,
        seconds_between_renewals: float = SECONDS_BETWEEN_RENEWALS,
        seconds_until_free: float = SECONDS_UNTIL_FREE,
    ) -> None:
        self._directory = directory
        self._renewal, self._free = seconds_between_renewals, seconds_until_free
        self._owner = this_owner()
        self._seen: dict[Path, tuple[str, float]] = {}

    @contextlib.contextmanager
    def hold(self, job: PurePosixPath, on_loss: Callable[[], None] = end_process) -> Iterator[bool]:
        """Inside the block this worker has the job, if it was free: yields whether it was.

        Args:
          job: path of the job.
          on_loss: called in another thread if another worker took the job over, or the worker's parent is
            gone; it should end the process, as it does if not given.
        """
        path = self._take(job)
        if path is None:
            yield False
            return
        ended = threading.Event()
        renewals = threading.Thread(target=self._renew_until, args=(job, path, ended, on_loss), daemon=True)
        renewals.start()
        try:
            yield True
        finally:
            ended.set()
            renewals.join()
            with contextlib.suppress(OSError):  # then it is free when it was not renewed for long enough
                self._renew(path, ended=True)

    @contextlib.contextmanager
    def hold_when_free(self, job: PurePosixPath, on_loss: Callable[[], None] = end_process) -> Iterator[None]:
        """As `hold`, but waits until this worker has the job; for what takes moments."""
        while True:
            with self.hold(job, on_loss) as has:
                if has:
                    yield
                    return
            time.sleep(_SECONDS_BETWEEN_TRIES)

    def owner(self, job: PurePosixPath) -> str | None:
        """The host and process that have a job, as far as can be told at one look; None if it is free."""
        newest = self._newest(job)
        if newest is None or self._is_free(newest[1]):
            return None
        with contextlib.suppress(OSError, ValueError):
            lease = json.loads(newest[1].read_text(encoding="utf-8"))
            return f"{lease['host']}, process {lease['pid']}"
        return None

    def _take(self, job: PurePosixPath) -> Path | None:
        newest = self._newest(job)
        if newest is None:
            return self._create(job, 1)
        generation, path = newest
        return self._create(job, generation + 1) if self._is_free(path) else None

    def _is_free(self, path: Path) -> bool:
        """Whether a lease is given back, its process is gone, or it has not changed for long enough."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            return False  # just replaced by one of the next generation
        with contextlib.suppress(ValueError):  # its owner is just writing it, or died before it had
            lease = json.loads(text)
            if lease["ended"] or is_gone(lease):
                return True
        before, since = self._seen.get(path, (None, 0.0))
        if before != text:
            self._seen[path] = text, time.monotonic()
            return False
        return time.monotonic() > since + self._free

    def _newest(self, job: PurePosixPath) -> tuple[int, Path] | None:
        found = [(int(path.suffix[1:]), path) for path in self._directory.glob(f"{_stem(job)}.[0-9]*")]
        return max(found, default=None)

    def _create(self, job: PurePosixPath, generation: int) -> Path | None:
        """The file of a lease, or None if another worker made it first."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{_stem(job)}.{generation}"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(self._lease(0, ended=False)))
                file.flush()
                os.fsync(file.fileno())  # what makes a bucket's object
        except FileExistsError:
            return None
        except OSError as error:
            if error.errno == errno.ESTALE:  # another worker made a bucket's object meanwhile
                return None
            path.unlink(missing_ok=True)
            raise
        newest = self._newest(job)
        if newest is not None and newest[0] > generation:
            # Since this worker looked, others had the job and removed the file of this generation.
            path.unlink(missing_ok=True)
            return None
        for older in range(1, generation):
            (self._directory / f"{_stem(job)}.{older}").unlink(missing_ok=True)
        return path

    def _renew_until(
        self, job: PurePosixPath, path: Path, ended: threading.Event, on_loss: Callable[[], None]
    ) -> None:
        parent = os.getppid()
        while not ended.wait(self._renewal):
            with contextlib.suppress(OSError):  # a full disk, or storage that is gone for a moment
                newest = self._newest(job)
                if (newest and newest[1] != path) or os.getppid() != parent:
                    on_loss()
                    return
                self._renew(path, ended=False)

    def _renew(self, path: Path, *, ended: bool) -> None:
        write_json(path, self._lease(time.monotonic_ns(), ended))

    def _lease(self, renewal: int, ended: bool) -> dict[str, Any]:
        return {**self._owner, "renewal": renewal, "ended": ended}


def this_owner() -> dict[str, Any]:
    """What a lease says of this process."""
    return {
        "owner": secrets.token_hex(8),
        "host": platform.node(),
        "boot": _boot(),
        "pid": os.getpid(),
        "process_began": _process_began(os.getpid()),
    }


def _stem(job: PurePosixPath) -> str:
    return "--".join(job.parts)


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
