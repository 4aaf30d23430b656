"""The files that TensorBoard reads, written by tensorboardX in the caller's thread.

tensorboardX's usual writer has a thread of its own, and if a disk error ends that thread, training waits for
it forever. And tensorboardX imports torch wherever that is installed, which takes 2 seconds and 200 MB and
puts torch's CUDA libraries beside jax's (`tests/parity/test_imports.py`), and the client of Google Cloud
Storage, half a second; scalars in a directory need neither.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def _not_imported(*names: str) -> Iterator[None]:
    """Inside the block those of these modules that are not imported yet cannot be imported."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with _not_imported("torch", "google.cloud.storage"):
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.proto.summary_pb2 import Summary


class EventsFile(EventsWriter):
    """A new file of curves, to `flush` and to `close`."""

    def __init__(self, directory: Path) -> None:
        """Begins the file, which tells a TensorBoard that is watching to discard what it has shown."""
        now = time.time()
        super().__init__(str(directory / "events"))
        self.write_event(Event(wall_time=now, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, wall_time: float, values: Mapping[str, float]) -> None:
        """Adds a point to each of some curves."""
        # One event a row: 10,000 rows then take 4 s at the next start, not 13 s.
        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.write_event(Event(wall_time=wall_time, step=step, summary=Summary(value=points)))
