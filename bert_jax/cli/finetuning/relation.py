"""Relations of two marked entities: SemEval-2010 Task 8, and generic JSONL."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.cli.finetuning.labels import decide, describe, outputs_of, write_lines
from bert_jax.cli.finetuning.predict_records import RECORDS_AT_ONCE, in_parts, predict_records
from bert_jax.cli.finetuning.task_data import Apply, Outcome, Prediction, join_figures
from data_pipeline.tasks.names import EntityStyle, PartName
from data_pipeline.tasks.parts import find_part, require_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.finetuning.config import HeadKind
    from data_pipeline.tasks.encode import TaskTokenizer
    from data_pipeline.tasks.metrics import MetricName
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.relation import RelationExample
    from data_pipeline.tasks.rows import Rows

_SEMEVAL: Mapping[PartName, tuple[str, ...]] = {
    "train": ("TRAIN_FILE",),
    "dev": ("TEST_FILE_FULL",),
    "test": ("TEST_FILE",),
}
_SUFFIXES = (".jsonl", ".txt", ".TXT")


@dataclasses.dataclass(frozen=True)
class RelationSettings:
    """A folder with train, dev and perhaps test as .jsonl of {"text", "head": {"start", "stop"},
    "tail": {"start", "stop"}, "label"} or as .txt in SemEval-2010 Task 8's form."""

    max_seq_length: int = 128
    """Longer texts are cut, away from the entities."""
    entities: EntityStyle = "markers"
    """markers: put pieces around them. types: put their types in their place."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "RelationData":
        """Reads and encodes the parts that are there."""
        from data_pipeline.tasks.encode import make_task_tokenizer
        from data_pipeline.tasks.labels import find_labels, label_ids, optional_label_ids
        from data_pipeline.tasks.relation_rows import relation_rows

        del task
        folder = Path(data)
        files = {name: require_part(folder, name, _SUFFIXES, _SEMEVAL[name]) for name in ("train", "dev")}
        if test := find_part(folder, "test", _SUFFIXES, _SEMEVAL["test"]):
            files["test"] = test
        if files["dev"].stem == _SEMEVAL["dev"][0]:
            print(f"{files['dev'].name} serves as dev: SemEval-2010 Task 8 has none, so its test set chooses")
        parts = {name: read(file) for name, file in files.items()}
        labels, plain = find_labels(parts["train"]), make_task_tokenizer(tokenizer)
        rows = {}
        for name, part in parts.items():
            is_test = name == "test"
            targets = optional_label_ids(part, labels) if is_test else {"labels": label_ids(part, labels)}
            rows[name] = relation_rows(part, plain, self.max_seq_length, self.entities, targets)
        return RelationData(labels, rows)

    def predict(self, job: Prediction) -> int:
        """A file of the same form; its labels are not looked at."""
        from data_pipeline.tasks.records import JSONL_SUFFIXES

        predict = _predict_json if job.input.suffix in JSONL_SUFFIXES else _predict_semeval
        return predict(job, self)

    def rows(self, examples: "Sequence[RelationExample]", tokenizer: "TaskTokenizer") -> "Rows":
        """Rows without targets."""
        from data_pipeline.tasks.relation_rows import relation_rows

        return relation_rows(examples, tokenizer, self.max_seq_length, self.entities, {})


class RelationData:
    """A `TaskData` of relations."""

    kind: "HeadKind" = "relation"

    def __init__(self, labels: tuple[str, ...], rows: "Mapping[str, Rows]") -> None:
        self.labels = labels
        self.train = rows["train"]
        self._rows = rows
        # SemEval's labels have a direction, and its score leaves Other out.
        self.metrics: tuple[MetricName, ...] = ("macro_f1", "accuracy")
        if "Other" in labels and any("(" in label for label in labels):
            self.metrics = ("semeval_f1", "accuracy")
        self.metric: str = self.metrics[0]

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The parts but training."""
        return {name: rows for name, rows in self._rows.items() if name != "train"}

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, with all that it is scored by."""
        return self._rows["dev"].fingerprint()

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """F1 and accuracy."""
        return self._figures({"dev": outputs_of(self._rows["dev"], apply)})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """`predictions-PART.jsonl`: the relation and the probabilities of all."""
        from data_pipeline.tasks.metrics import find_degenerate_classes

        outputs = {name: outputs_of(rows, apply) for name, rows in self.evaluated.items()}
        for name, values in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", describe(self.kind, self.labels, values))
        gold, decided = self._rows["dev"].targets["labels"], decide(self.kind, outputs["dev"])
        return Outcome(self._figures(outputs), find_degenerate_classes(gold, decided, self.labels))

    def _figures(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Of the parts that have labels."""
        from data_pipeline.tasks.metrics import score

        targets = {name: self._rows[name].targets for name in outputs}
        return join_figures(
            {
                name: score(self.metrics, targets[name]["labels"], decide(self.kind, values), self.labels)
                for name, values in outputs.items()
                if "labels" in targets[name]
            }
        )


def read(file: Path) -> "list[RelationExample]":
    """The examples of a file, by its suffix."""
    from data_pipeline.tasks.records import JSONL_SUFFIXES
    from data_pipeline.tasks.relation import read_relations, read_semeval

    return read_relations(file) if file.suffix in JSONL_SUFFIXES else read_semeval(file)


def _predict_json(job: Prediction, settings: RelationSettings) -> int:
    from data_pipeline.tasks.encode import make_task_tokenizer
    from data_pipeline.tasks.records import read_records
    from data_pipeline.tasks.relation import RELATION_FIELDS, parse_relation

    tokenizer = make_task_tokenizer(job.tokenizer)

    def encode(records: "Sequence[Record]") -> "Rows":
        return settings.rows([parse_relation(record.without("label")) for record in records], tokenizer)

    say = functools.partial(describe, "relation", job.record.labels)
    return predict_records(job, read_records(job.input, RELATION_FIELDS), encode, say)


def _predict_semeval(job: Prediction, settings: RelationSettings) -> int:
    """Each sentence with its relation below, as in the files with relations; the probability is a comment."""
    from data_pipeline.tasks.encode import make_task_tokenizer
    from data_pipeline.tasks.relation import parse_semeval, split_semeval

    tokenizer = make_task_tokenizer(job.tokenizer)

    def parts() -> Iterator[list[str]]:
        for part in in_parts(split_semeval(job.input), RECORDS_AT_ONCE):
            rows = settings.rows([parse_semeval(lines) for lines in part], tokenizer)
            found = describe("relation", job.record.labels, outputs_of(rows, job.apply))
            yield [
                f"{lines[0][1]}\n{one['label']}\n"
                f"Comment: probability {max(one['probabilities'].values())}\n\n"
                for lines, one in zip(part, found, strict=True)
            ]

    return job.write_text(parts())
