"""The flags of a task of fine-tuning: what its files look like, and how they become rows."""

from typing import ClassVar

from data_pipeline.checks import check_types


class TaskFlags:
    """The flags of a task. A subclass is a frozen dataclass with a default for each.

    Its docstring describes --data.
    """

    max_seq_length: int
    """Longest sequence, in tokens."""
    cut_by: ClassVar[str] = "max_seq_length"
    """Name of the flag that limits the length of text; `Rows.num_cut` counts the texts that it cuts."""
    files_only: ClassVar[bool] = False
    """Whether the data must be files and cannot be a TensorFlow dataset."""

    def __post_init__(self) -> None:
        check_types(self, "")
