"""The directory of a command's output file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def directory_of(output: Path) -> Iterator[None]:
    """Creates the output file's parent directories; removes the new ones if the block leaves no output."""
    missing = [directory for directory in output.parents if not directory.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if not output.exists():
            with contextlib.suppress(OSError):  # not empty: another process has put a file there meanwhile
                for directory in missing:
                    directory.rmdir()
