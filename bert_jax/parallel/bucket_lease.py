"""The right to work in a directory of a bucket, held by one process at a time.

As in `leases.py`, a process renews the object that says so every few seconds, and nobody compares clocks: a
lease is free when it was given back, when its process is one of this machine that has ended, or when it was
seen unchanged for long enough. An object is replaced only if it has the generation that was seen, so one of
several processes that take a free lease has it.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.parallel.leases import SECONDS_UNTIL_FREE, end_process, is_gone, this_owner
from data_pipeline.bucket import BucketDirectory
from data_pipeline.errors import UserError
from data_pipeline.repeating import repeated

NAME = "lease.json"
_SECONDS_BETWEEN_RENEWALS = 10.0
_SECONDS_BETWEEN_LOOKS = 2.0


@contextlib.contextmanager
def hold(
    directory: BucketDirectory,
    *,
    on_loss: Callable[[], None] = end_process,
    seconds_until_free: float = SECONDS_UNTIL_FREE,
    seconds_between_renewals: float = _SECONDS_BETWEEN_RENEWALS,
) -> Iterator[None]:
    """Inside the block this process has the directory.

    Args:
      directory: that only one process at a time is to work in.
      on_loss: called in another thread if another process took the directory over; it should end this one,
        as it does if not given.
      seconds_until_free: how long a lease that is not renewed counts.
      seconds_between_renewals: of this one.

    Raises:
      UserError: another process has it, or the bucket may not be used.
      Unfinished: the bucket does not answer.
    """
    owner = this_owner()
    generation = _take(directory, owner, seconds_until_free)

    def renew() -> None:
        nonlocal generation
        renewed = directory.write(NAME, _lease(owner, ended=False), generation)
        if renewed is None:
            on_loss()
        else:
            generation = renewed

    try:
        with repeated(renew, seconds_between_renewals):
            yield
    finally:
        with contextlib.suppress(UserError):  # then it is free when it was not renewed for long enough
            directory.write(NAME, _lease(owner, ended=True), generation)


def _take(directory: BucketDirectory, owner: dict[str, Any], seconds_until_free: float) -> int:
    """Takes the lease and returns the generation of its object."""
    seen, since = -1, time.monotonic()
    while True:
        content, generation = directory.read(NAME) or (b"", 0)
        lease = _parse(content)
        unchanged = generation == seen and time.monotonic() > since + seconds_until_free
        if lease is None or lease["ended"] or is_gone(lease) or unchanged:
            mine = directory.write(NAME, _lease(owner, ended=False), generation)
            if mine is not None:
                return mine
        elif generation != seen:
            if seen != -1:
                raise UserError(
                    f"{directory} is in use by process {lease['pid']} on {lease['host']}; wait for it or "
                    "name another directory"
                )
            seen, since = generation, time.monotonic()
            print(
                f"{directory} was last used by process {lease['pid']} on {lease['host']}; looking for up to "
                f"{seconds_until_free:.0f} s whether it still is",
                flush=True,
            )
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _parse(content: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        lease = json.loads(content)
        if isinstance(lease, dict) and {"ended", "host", "pid", "boot", "process_began"} <= set(lease):
            return lease
    return None


def _lease(owner: dict[str, Any], *, ended: bool) -> bytes:
    return json.dumps({**owner, "renewal": time.monotonic_ns(), "ended": ended}).encode()
