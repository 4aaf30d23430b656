"""SQuAD: files, windows of passages, answers, and scores."""

import dataclasses
from typing import ClassVar

from data_pipeline.checks import check_positive
from data_pipeline.tasks.finetuning.flags import TaskFlags


@dataclasses.dataclass(frozen=True)
class Flags(TaskFlags):
    """A directory with train-v1.1.json and dev-v1.1.json, or train-v2.0.json and dev-v2.0.json; or
    tfds:squad/v1.1 or tfds:squad/v2.0."""

    max_seq_length: int = 384
    """Maximum length of a window with its question, in tokens; longer passages have several windows."""
    doc_stride: int = 128
    """Tokens from the start of a window to the start of the next one."""
    max_query_length: int = 64
    """Maximum length of a question, in tokens; longer ones are truncated."""
    n_best_size: int = 20
    """Number of starts and of ends tried in each window, and of answers kept for each question."""
    max_answer_length: int = 30
    """Maximum length of an answer, in tokens."""
    cut_by: ClassVar[str] = "max_query_length"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("doc_stride", "max_query_length", "n_best_size", "max_answer_length"):
            check_positive(name, getattr(self, name))
