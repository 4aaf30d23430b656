"""The tasks of `bert-jax finetune`.

A task is a module here (head, loss, metrics, predictions, what it exports as), a module or directory of the
same name in `data_pipeline/tasks/` (flags, files, rows, scores), and a line of `TASKS`. One outside the
package is a module that defines a `Task`.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bert_jax.user_code import find_named

if TYPE_CHECKING:
    from bert_jax.tasks.finetuning.task import TaskSettings
    from data_pipeline.tasks.finetuning.flags import TaskFlags


@dataclasses.dataclass(frozen=True)
class Task:
    """A task that can be named on the command line."""

    flags_module: str
    """Defines `Flags`; to show help quickly, it imports no jax."""
    settings_module: str
    """Defines `Settings`; it may be the same module."""
    summary: str

    def flags(self) -> "TaskFlags":
        """The task's flags with their defaults."""
        return importlib.import_module(self.flags_module).Flags()

    def settings(self, flags: "TaskFlags | None" = None) -> "TaskSettings":
        """The task with these flags; None: with their defaults."""
        return importlib.import_module(self.settings_module).Settings(**vars(flags or self.flags()))


def _task(module: str, summary: str) -> Task:
    return Task(f"data_pipeline.tasks.{module}", f"bert_jax.tasks.{module}", summary)


TASKS: Mapping[str, Task] = {
    "cola": _task("glue", "GLUE: is a sentence acceptable"),
    "sst2": _task("glue", "GLUE: sentiment of film reviews"),
    "mrpc": _task("glue", "GLUE: are two sentences paraphrases"),
    "stsb": _task("glue", "GLUE: similarity of two sentences, 0 to 5"),
    "qqp": _task("glue", "GLUE: are two questions the same"),
    "mnli": _task("glue", "GLUE: entailment, matched and mismatched"),
    "qnli": _task("glue", "GLUE: does a sentence answer a question"),
    "rte": _task("glue", "GLUE: entailment, small"),
    "wnli": _task("glue", "GLUE: Winograd sentences"),
    "squad": _task("squad", "SQuAD 1.1: find the answer in a passage"),
    "squad2": _task("squad", "SQuAD 2.0: find the answer in a passage, if there is one"),
    "ner": _task("tagging", "named entities: CoNLL-2003 and other column files"),
    "swag": _task("choice", "multiple choice: SWAG, CODAH or your own"),
    "relation": _task("relation", "relation of two entities: SemEval-2010 or your own"),
    "tag": _task("tagging", "your own words with tags, in columns"),
    "rank": _task("ranking", "your own queries: put candidates in order"),
    "classify": _task("classify", "your own texts or pairs, any number of labels"),
    "regress": _task("classify", "your own texts or pairs, a number"),
}


def find_task(name: str) -> Task:
    """The task of a name, or the one that `module:NAME` names, whose module is then imported.

    Raises:
      UserError: there is none.
    """
    return find_named("task", name, TASKS, lambda value: isinstance(value, Task))
