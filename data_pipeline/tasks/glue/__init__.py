"""GLUE: its tasks, their files, and the zip for its server."""

import dataclasses

from data_pipeline.tasks.finetuning.flags import TaskFlags


@dataclasses.dataclass(frozen=True)
class Flags(TaskFlags):
    """GLUE's directory with CoLA/train.tsv and so on, the directory of one task, or tfds:glue/NAME."""

    max_seq_length: int = 128
    """Maximum length of a text or pair, in tokens; longer ones are truncated."""
    encoding: str = "utf-8"
    """Encoding of the files, such as latin-1."""
