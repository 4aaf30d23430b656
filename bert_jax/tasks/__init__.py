"""The tasks of `bert-jax finetune`.

A task is a module here (head, loss, metrics, predictions, what it exports as), a module or directory of the
same name in `data_pipeline/tasks/` (flags, files, rows, scores), and a line of `TASKS`.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.tasks.finetuning.task import TaskSettings
    from data_pipeline.tasks.finetuning.flags import TaskFlags


@dataclasses.dataclass(frozen=True)
class Task:
    """A task that can be named on the command line."""

    module: str
    """Name of its modules, here and in `data_pipeline/tasks/`; several tasks may share them."""
    summary: str

    def flags(self) -> "TaskFlags":
        """The task's flags with their defaults, without importing jax."""
        return importlib.import_module(f"data_pipeline.tasks.{self.module}").Flags()

    def settings(self, flags: "TaskFlags | None" = None) -> "TaskSettings":
        """The task with these flags; None: with their defaults. Imports the module, and jax with it."""
        module = importlib.import_module(f"bert_jax.tasks.{self.module}")
        return module.Settings(**vars(flags or self.flags()))


TASKS: Mapping[str, Task] = {
    "cola": Task("glue", "GLUE: is a sentence acceptable"),
    "sst2": Task("glue", "GLUE: sentiment of film reviews"),
    "mrpc": Task("glue", "GLUE: are two sentences paraphrases"),
    "stsb": Task("glue", "GLUE: similarity of two sentences, 0 to 5"),
    "qqp": Task("glue", "GLUE: are two questions the same"),
    "mnli": Task("glue", "GLUE: entailment, matched and mismatched"),
    "qnli": Task("glue", "GLUE: does a sentence answer a question"),
    "rte": Task("glue", "GLUE: entailment, small"),
    "wnli": Task("glue", "GLUE: Winograd sentences"),
    "squad": Task("squad", "SQuAD 1.1: find the answer in a passage"),
    "squad2": Task("squad", "SQuAD 2.0: find the answer in a passage, if there is one"),
    "ner": Task("tagging", "named entities: CoNLL-2003 and other column files"),
    "swag": Task("choice", "multiple choice: SWAG, CODAH or your own"),
    "relation": Task("relation", "relation of two entities: SemEval-2010 or your own"),
    "tag": Task("tagging", "your own words with tags, in columns"),
    "rank": Task("ranking", "your own queries: put candidates in order"),
    "classify": Task("classify", "your own texts or pairs, any number of labels"),
    "regress": Task("classify", "your own texts or pairs, a number"),
}
