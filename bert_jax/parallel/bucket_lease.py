"""The right to work in a directory of a bucket, held by one process at a time."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import PurePosixPath

from bert_jax.parallel.lease_store import LeaseObjects
from bert_jax.parallel.leases import SECONDS_UNTIL_FREE, Leases
from data_pipeline.bucket import BucketDirectory
from data_pipeline.errors import UserError
from data_pipeline.stand_in import LEASE_FILE

_SECONDS_BETWEEN_RENEWALS = 10.0
_SECONDS_BETWEEN_LOOKS = 2.0


@contextlib.contextmanager
def hold(directory: BucketDirectory) -> Iterator[None]:
    """Inside the block this process has the directory, and ends if another one takes it over.

    Raises:
      UserError: another process has it, or the bucket may not be used.
      Unfinished: the bucket does not answer.
    """
    store = LeaseObjects(directory)
    leases = Leases(store, seconds_between_renewals=_SECONDS_BETWEEN_RENEWALS)
    name, seen = PurePosixPath(LEASE_FILE), None
    while True:
        with leases.hold(name) as has:
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
