"""The folder of a command's output file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder_of(output: Path) -> Iterator[None]:
    """Creates the output file's parent folders; removes the new ones again if the block leaves no output."""
    missing = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if not output.exists():
            with contextlib.suppress(OSError):  # not empty: another process has put a file there meanwhile
                for folder in missing:
                    folder.rmdir()
