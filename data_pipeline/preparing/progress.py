"""What a pass over the inputs tells about how far it is."""

from collections.abc import Callable, Iterator

from data_pipeline.preparing.inputs import Inputs
from data_pipeline.preparing.readers import Document

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a pass over the inputs, the bytes read in it, and all of its bytes if known."""


def read_documents(inputs: Inputs, name: str, on_progress: Progress) -> Iterator[Document]:
    """Every document in order, in a pass called `name`."""
    done, total = 0, inputs.total_bytes

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(name, done, total)

    advance(0)
    return inputs.documents(advance)
