"""The flags of `bert-jax submission`."""

import dataclasses
from pathlib import Path

from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class Submission:
    """Join the test predictions of fine-tuned GLUE tasks into the zip that GLUE's server takes.

    The server refuses a zip that lacks one of its eleven files. The files of tasks without a run hold the
    same answer for every example, and are listed: their scores mean nothing.
    """

    runs: tuple[Path, ...]
    """Directories that `bert-jax finetune` made for GLUE tasks, one for each task."""
    output: Path
    """Zip to make; it must not exist."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("--runs names no run; name one or more")
