"""The data of a task, read from a few small files."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.tasks import TASKS
from tests.data_pipeline.tasks.files import write_all
from tests.data_pipeline.tasks.small_tokenizer import read_model_tokenizer


def load(directory: Path, task: str, files: Mapping[str, str | bytes] | None = None, **flags: Any) -> Any:
    """The `TaskData` of the files in a directory, encoded by a tokenizer of few pieces.

    Args:
      files: content by name; they are written first, beside those that are there.
      flags: the task's flags that are not its defaults.
    """
    write_all(directory, files or {})
    tokenizer = read_model_tokenizer(directory / "tokenizer", "$", "#")  # which mark a relation's entities
    settings: Any = TASKS[task].settings()
    return dataclasses.replace(settings, **flags).load(task, str(directory), tokenizer)
