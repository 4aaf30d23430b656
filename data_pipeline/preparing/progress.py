"""Progress reports of passes over the inputs."""

from collections.abc import Callable

from data_pipeline.preparing.inputs import Inputs

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a pass over the inputs, the bytes read in it so far, and their total if known."""


def count_bytes(inputs: Inputs, name: str, on_progress: Progress) -> Callable[[int], None]:
    """Begins a pass over the inputs; returns a function to call with the bytes read since its last call."""
    done, total = 0, inputs.total_bytes

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(name, done, total)

    advance(0)
    return advance
