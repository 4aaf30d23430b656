"""Relations of two marked entities: SemEval-2010 Task 8, and generic JSONL."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.labelled_data import LabelledData, predict_labels
from bert_jax.downstream.predict_records import (
    check_whole,
    in_parts,
    line_end,
    predict_records,
    records_at_once,
)
from bert_jax.downstream.task_data import AppliedModel, Prediction
from data_pipeline.tasks.names import EntityStyle, MetricName, PartName
from data_pipeline.tasks.parts import find_part, require_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.encode import TaskTokenizer
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.relation import PlacedLines, RelationExample
    from data_pipeline.tasks.rows import Rows

_SEMEVAL: Mapping[PartName, tuple[str, ...]] = {
    "train": ("TRAIN_FILE",),
    "dev": ("TEST_FILE_FULL",),
    "test": ("TEST_FILE",),
}
_SUFFIXES = (".jsonl", ".txt", ".TXT")


@dataclasses.dataclass(frozen=True)
class RelationSettings:
    """A folder with train, dev and optionally test: .jsonl with {"text", "head": {"start", "stop"},
    "tail": {"start", "stop"}, "label"} per line, or .txt in the form of SemEval-2010 Task 8."""

    max_seq_length: int = 128
    """Most tokens of a text; longer ones are cut, away from the entities."""
    entities: EntityStyle = "markers"
    """How entities are shown. markers: with a piece before and after. types: replaced by their types."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> LabelledData:
        """Reads and encodes train, dev, and test if there is one."""
        from data_pipeline.tasks.encode import make_task_tokenizer
        from data_pipeline.tasks.labels import find_labels, label_targets, optional_label_targets

        del task
        folder = Path(data)
        train_file, dev_file = (
            require_part(folder, part, _SUFFIXES, _SEMEVAL[part]) for part in ("train", "dev")
        )
        test_file = find_part(folder, "test", _SUFFIXES, _SEMEVAL["test"])
        if dev_file.stem == _SEMEVAL["dev"][0]:
            print(f"{dev_file.name} serves as dev: SemEval-2010 Task 8 has none, so its test set chooses")
        train, dev = read(train_file), read(dev_file)
        labels, plain = find_labels(train), make_task_tokenizer(tokenizer)
        train_rows, dev_rows = (self.rows(part, plain, label_targets(part, labels)) for part in (train, dev))
        tests = {}
        if test_file:
            test = read(test_file)
            tests["test"] = self.rows(test, plain, optional_label_targets(test, labels, train))
        return LabelledData("relation", labels, _metrics(labels), train_rows, {"dev": dev_rows}, tests)

    def predict_file(self, job: Prediction) -> int:
        """Predicts a file in one of the forms of the training data; its labels are ignored."""
        from data_pipeline import jsonl
        from data_pipeline.tasks.records import read_records
        from data_pipeline.tasks.relation import RELATION_FIELDS

        if job.input.suffix not in jsonl.SUFFIXES:
            return self._predict_semeval(job)
        read = functools.partial(read_records, job.input, RELATION_FIELDS)
        return predict_records(job, read, _unlabelled, functools.partial(self._predict, model=job.model))

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"text", "head": {"start", "stop"}, "tail": {"start", "stop"}}."""
        from data_pipeline.tasks.records import as_records
        from data_pipeline.tasks.relation import RELATION_FIELDS

        records = as_records(examples, RELATION_FIELDS)
        return list(self._predict([_unlabelled(record) for record in records], model))

    def _predict_semeval(self, job: Prediction) -> int:
        """Writes each sentence with its relation and a comment with the probability, in SemEval's form."""
        from data_pipeline.tasks.relation import parse_semeval, split_semeval

        end = line_end(job.input)

        def read() -> "Iterator[tuple[PlacedLines, RelationExample]]":
            return ((lines, parse_semeval(lines)) for lines in split_semeval(job.input))

        def parts() -> Iterator[list[str]]:
            for part in in_parts(check_whole(read), records_at_once(len(job.model.record.labels))):
                found = self._predict([example for _, example in part], job.model)
                yield [
                    f"{lines[0][1]}{end}{one['label']}{end}"
                    f"Comment: probability {max(one['probabilities'].values())}{end}{end}"
                    for (lines, _), one in zip(part, found, strict=True)
                ]

        return job.write_text(parts())

    def _predict(
        self, examples: "Sequence[RelationExample]", model: AppliedModel
    ) -> Iterator[dict[str, Any]]:
        return predict_labels(self.rows(examples, model.plain_tokenizer, {}), model)

    def rows(
        self,
        examples: "Sequence[RelationExample]",
        tokenizer: "TaskTokenizer",
        targets: "Mapping[str, np.ndarray]",
    ) -> "Rows":
        """The rows of some examples; arguments as for `relation_rows`."""
        from data_pipeline.tasks.relation_rows import relation_rows

        return relation_rows(examples, tokenizer, self.max_seq_length, self.entities, targets)


def read(file: Path) -> "list[RelationExample]":
    """The examples of a file, whose suffix decides its form."""
    from data_pipeline import jsonl
    from data_pipeline.tasks.relation import read_relations, read_semeval

    return read_relations(file) if file.suffix in jsonl.SUFFIXES else read_semeval(file)


def _unlabelled(record: "Record") -> "RelationExample":
    from data_pipeline.tasks.relation import parse_relation

    return parse_relation(record.without("label"))


def _metrics(labels: Sequence[str]) -> tuple[MetricName, ...]:
    """SemEval's metric if there is Other and a label with a direction, else macro F1; and accuracy."""
    is_semeval = "Other" in labels and any("(" in label for label in labels)
    return ("semeval_f1" if is_semeval else "macro_f1", "accuracy")
