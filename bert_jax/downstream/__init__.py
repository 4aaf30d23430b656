"""The tasks of `bert-jax finetune`: each connects the data of a task with the training of a model."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bert_jax.downstream.choice import ChoiceSettings
from bert_jax.downstream.glue import GlueSettings
from bert_jax.downstream.ranking import RankingSettings
from bert_jax.downstream.relation import RelationSettings
from bert_jax.downstream.squad import SquadSettings
from bert_jax.downstream.tagging import TaggingSettings
from bert_jax.downstream.text_classification import TableSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.downstream.task_data import AppliedModel, Prediction, TaskData


class Settings(Protocol):
    """A task's flags, which decide how its data become rows, and what the task does with data."""

    @property
    def max_seq_length(self) -> int:
        """Longest sequence, in tokens."""
        ...

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "TaskData":
        """Reads and encodes the data set."""
        ...

    def predict_file(self, job: "Prediction") -> int:
        """Predicts the examples of a file, writes the predictions, and returns the number of examples."""
        ...

    def predict_examples(self, examples: Sequence[Any], model: "AppliedModel") -> list[Any]:
        """Predictions for one or more examples in memory, which have the task's own form.

        Raises UserError naming an example of another form.
        """
        ...


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """A task that can be named on the command line."""

    summary: str
    settings: Settings
    cut_by: str = "max_seq_length"
    """Name of the setting that limits the length of text; `Rows.num_cut` counts the texts that it cuts."""
    files_only: bool = False
    """Whether its data must be files and cannot be a TensorFlow dataset."""


TASKS: Mapping[str, TaskEntry] = {
    "cola": TaskEntry("GLUE: is a sentence acceptable", GlueSettings()),
    "sst2": TaskEntry("GLUE: sentiment of film reviews", GlueSettings()),
    "mrpc": TaskEntry("GLUE: are two sentences paraphrases", GlueSettings()),
    "stsb": TaskEntry("GLUE: similarity of two sentences, 0 to 5", GlueSettings()),
    "qqp": TaskEntry("GLUE: are two questions the same", GlueSettings()),
    "mnli": TaskEntry("GLUE: entailment, matched and mismatched", GlueSettings()),
    "qnli": TaskEntry("GLUE: does a sentence answer a question", GlueSettings()),
    "rte": TaskEntry("GLUE: entailment, small", GlueSettings()),
    "wnli": TaskEntry("GLUE: Winograd sentences", GlueSettings()),
    "squad": TaskEntry("SQuAD 1.1: find the answer in a passage", SquadSettings(), "max_query_length"),
    "squad2": TaskEntry("SQuAD 2.0: or find that there is none", SquadSettings(), "max_query_length"),
    "ner": TaskEntry("named entities: CoNLL-2003 and other column files", TaggingSettings()),
    "swag": TaskEntry("multiple choice: SWAG, CODAH or your own", ChoiceSettings(), files_only=True),
    "relation": TaskEntry(
        "relation of two entities: SemEval-2010 or your own", RelationSettings(), files_only=True
    ),
    "tag": TaskEntry("your own words with tags, in columns", TaggingSettings()),
    "rank": TaskEntry("your own queries: put candidates in order", RankingSettings(), files_only=True),
    "classify": TaskEntry("your own texts or pairs, any number of labels", TableSettings()),
    "regress": TaskEntry("your own texts or pairs, a number", TableSettings()),
}
