"""The parts of tensorboardX that write TensorBoard's files, imported without torch.

tensorboardX imports torch if it is installed, which takes two seconds and 200 MB and is not needed
for scalars.
"""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _not_imported(name: str) -> Iterator[None]:
    """Inside the block a module that is not imported yet cannot be imported."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _not_imported("torch"):
    from tensorboardX.event_file_writer import EventsWriter as EventsWriter
    from tensorboardX.proto.event_pb2 import Event as Event
    from tensorboardX.proto.event_pb2 import SessionLog as SessionLog
    from tensorboardX.summary import Summary as Summary
    from tensorboardX.summary import scalar as scalar
