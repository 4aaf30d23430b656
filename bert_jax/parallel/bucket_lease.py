"""The right to work in a directory of a bucket, held by one process at a time."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from bert_jax.parallel.lease_store import LeaseObjects
from bert_jax.parallel.leases import SECONDS_UNTIL_FREE, Leases, end_process
from data_pipeline.bucket import BucketDirectory
from data_pipeline.errors import UserError
from data_pipeline.stand_in import LEASE_FILE

_SECONDS_BETWEEN_RENEWALS = 10.0
_SECONDS_BETWEEN_LOOKS = 2.0


@contextlib.contextmanager
def hold(
    directory: BucketDirectory,
    *,
    on_lost: Callable[[], None] = end_process,
    seconds_between_renewals: float = _SECONDS_BETWEEN_RENEWALS,
) -> Iterator[None]:
    """Inside the block this process has the directory.

    Args:
      directory: that only one process at a time is to work in.
      on_lost: called in another thread if another process took the directory over; it should end this one,
        as it does if not given.
      seconds_between_renewals: of its lease.

    Raises:
      UserError: another process has it, or the bucket may not be used.
      Unfinished: the bucket does not answer.
    """
    store = LeaseObjects(directory)
    leases = Leases(store, seconds_between_renewals=seconds_between_renewals)
    name, seen = PurePosixPath(LEASE_FILE), None
    while True:
        with leases.hold(name, on_lost) as has:
            if has:
                yield
                return
        owner, newest = leases.owner(name), store.newest(LEASE_FILE)
        if owner and newest:
            if seen is None:
                print(
                    f"{directory} was last used by {owner}; checking for up to {SECONDS_UNTIL_FREE:.0f} s "
                    "whether it still is",
                    flush=True,
                )
                seen = newest[0]
            elif seen != newest[0]:  # renewed meanwhile
                raise UserError(f"{directory} is in use by {owner}; wait for it or name another directory")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
