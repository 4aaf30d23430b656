"""The flags of `bert-jax predict`."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Predict:
    """Apply a fine-tuned model to a file in the format of its task's data; labels are not needed.

    The output has the input's format: tables and tagged words gain columns, JSON gains a field
    "prediction", candidates are ranked.
    """

    model: Path
    """Directory that `bert-jax finetune` made."""
    input: Path
    """File in the format of the task's data."""
    output: Path
    """File to make; it must not exist."""
    batch_size: int = 64
    """Rows to compute at once: texts, windows of passages, or questions with
    their choices. The results do not depend on it."""
    encoding: str = "utf-8"
    """Encoding of the input, such as latin-1; the output has it too. JSON of
    SQuAD is always in UTF-8."""
