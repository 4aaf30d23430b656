"""The folder that a command's output file is to stand in."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder_of(output: Path) -> Iterator[None]:
    """Makes the folder of the output; what of it was not there goes again if no output comes."""
    missing = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if not output.exists():
            with contextlib.suppress(OSError):  # somebody else put a file there meanwhile
                for folder in missing:
                    folder.rmdir()
