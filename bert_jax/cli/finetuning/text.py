"""GLUE, and classification and regression on a user's own tables."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from bert_jax.cli.finetuning.labels import decide, describe, outputs_of, write_lines
from bert_jax.cli.finetuning.predict_records import Header, predict_records
from bert_jax.cli.finetuning.task_data import Apply, Outcome, Prediction, join_figures
from data_pipeline import tfds
from data_pipeline.tasks.parts import find_part, require_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bert_jax.finetuning.config import HeadKind
    from data_pipeline.tasks.glue_tasks import GlueName, GlueTask
    from data_pipeline.tasks.metrics import MetricName
    from data_pipeline.tasks.records import Place, Record
    from data_pipeline.tasks.rows import Rows
    from data_pipeline.tasks.texts import TextExample

TextKind = Literal["classification", "regression"]


@dataclasses.dataclass(frozen=True)
class GlueSettings:
    """GLUE's files: a folder with CoLA/train.tsv and so on, one task's folder, or tfds:glue/NAME."""

    max_seq_length: int = 128
    """Longer texts are cut."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "TextData":
        """Reads and encodes a task of GLUE."""
        return load_glue(cast("GlueName", task), data, _Encoder(tokenizer, self.max_seq_length))

    def predict(self, job: Prediction) -> int:
        """A file of GLUE's, or a table with the task's own columns, such as sentence1 and sentence2."""
        from data_pipeline.tasks.glue_files import glue_example, open_glue
        from data_pipeline.tasks.glue_tasks import GLUE_TASKS

        file = open_glue(job.input, GLUE_TASKS[cast("GlueName", job.record.task)])
        _say_broken(file.broken)
        header: Header = "names" if file.has_names else "none"
        example = functools.partial(glue_example, columns=file.columns)
        return predict_texts(job, file.records, example, self.max_seq_length, header)


@dataclasses.dataclass(frozen=True)
class TableSettings:
    """A folder with train, dev and perhaps test, each .tsv, .csv or .jsonl; or tfds:NAME, whose fields
    are the columns."""

    max_seq_length: int = 128
    """Longer texts are cut."""
    text_column: str = "text"
    """Name of the column, or of the field of JSONL, with the text."""
    pair_column: str | None = None
    """The one with the second text, if examples are pairs."""
    label_column: str = "label"
    """The one with the label or the number."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "TextData":
        """Reads and encodes a user's own tables."""
        kind: TextKind = "regression" if task == "regress" else "classification"
        return load_tables(kind, data, self, _Encoder(tokenizer, self.max_seq_length))

    def predict(self, job: Prediction) -> int:
        """A table with the columns that the model was trained on, but for the label."""
        from data_pipeline.tasks.records import read_records
        from data_pipeline.tasks.texts import text_example

        columns = [name for name in (self.text_column, self.pair_column) if name is not None]
        example = functools.partial(text_example, text=self.text_column, pair=self.pair_column)
        return predict_texts(job, read_records(job.input, columns), example, self.max_seq_length)


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A development or test set."""

    name: str
    rows: "Rows"


class TextData:
    """A `TaskData` of texts or pairs."""

    def __init__(
        self,
        kind: TextKind,
        labels: tuple[str, ...],
        metrics: "tuple[MetricName, ...]",
        train: "Rows",
        dev: Sequence[Part],
        test: Sequence[Part],
        submissions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Args: what it holds; and for GLUE, the file of each test set in a zip for the server."""
        self.kind: HeadKind = kind
        self.labels = labels
        self.metrics = metrics
        self.metric = metrics[0]
        self.train = train
        self._dev = dev
        self._test = test
        self._submissions = submissions

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The parts but training."""
        return {part.name: part.rows for part in (*self._dev, *self._test)}

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, with all that it is scored by."""
        first, *others = (part.rows for part in self._dev)
        return first.fingerprint(*(rows.fingerprint() for rows in others))

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """The task's metrics; those of a second development set carry its name."""
        return self._figures({part.name: outputs_of(part.rows, apply) for part in self._dev})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """`predictions-PART.jsonl` for each part, and GLUE's zip if there are its test sets."""
        outputs = {part.name: outputs_of(part.rows, apply) for part in (*self._dev, *self._test)}
        for name, values in outputs.items():
            write_lines(folder / f"predictions-{name}.jsonl", describe(self.kind, self.labels, values))
        if self._submissions and self._test:
            self._write_submission(folder, outputs)
        return Outcome(self._figures(outputs), self._degenerate(outputs[self._dev[0].name]))

    def _figures(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Of the parts that have labels."""
        return join_figures(
            {
                part.name: self._score(part, decide(self.kind, outputs[part.name]))
                for part in (*self._dev, *self._test)
                if part.name in outputs and part.rows.targets
            }
        )

    def _degenerate(self, outputs: np.ndarray) -> str | None:
        from data_pipeline.tasks.metrics import find_degenerate_classes, find_degenerate_values

        targets, decided = self._dev[0].rows.targets, decide(self.kind, outputs)
        if self.kind == "regression":
            return find_degenerate_values(targets["values"], decided)
        return find_degenerate_classes(targets["labels"], decided, self.labels)

    def _score(self, part: Part, decided: np.ndarray) -> dict[str, float]:
        from data_pipeline.tasks.metrics import score

        targets = part.rows.targets["values" if self.kind == "regression" else "labels"]
        return score(self.metrics, targets, decided, self.labels)

    def _write_submission(self, folder: Path, outputs: Mapping[str, np.ndarray]) -> None:
        from data_pipeline.tasks.glue_submission import SUBMISSION_FILE, submission_text, write_submission

        texts = {}
        for part in self._test:
            values = decide(self.kind, outputs[part.name]).tolist()
            words = [self.labels[value] for value in values] if self.labels else values
            texts[self._submissions[part.name]] = submission_text(words)
        write_submission(folder / SUBMISSION_FILE, texts)


def load_glue(name: "GlueName", data: str, encoder: "_Encoder") -> TextData:
    """A GLUE task from its folder, or from `tfds:glue/NAME`.

    Raises:
      UserError: as `data_pipeline.tasks.glue.read_glue`.
    """
    from data_pipeline.tasks.glue import read_glue
    from data_pipeline.tasks.glue_tasks import GLUE_TASKS

    task = GLUE_TASKS[name]
    kind: TextKind = "classification" if task.labels else "regression"

    def read(split: Any, task: "GlueTask" = task, source: str = data) -> Part:
        found = read_glue(source, task, split)
        _say_broken(found.broken)
        examples = found.examples
        targets = {} if split in task.submissions else _targets(kind, examples, task.labels)
        return encoder.encode(split, examples, targets)

    train, *dev = (read(split) for split in task.files if split not in task.submissions)
    tests = [
        read(split)
        for split in task.submissions
        if tfds.is_tfds(data) or _glue_file(data, task.folder, task.files[split]).exists()
    ]
    submissions = {str(split): file for split, file in task.submissions.items()}
    if name == "mnli" and (source := _find_diagnostic(data)):
        diagnostic = GLUE_TASKS["ax"]
        tests.append(dataclasses.replace(read("test", diagnostic, source), name=diagnostic.folder))
        submissions[diagnostic.folder] = diagnostic.submissions["test"]
    return TextData(kind, task.labels, task.metrics, train.rows, dev, tests, submissions)


def load_tables(kind: TextKind, data: str, settings: TableSettings, encoder: "_Encoder") -> TextData:
    """`train`, `dev` and perhaps `test` as .tsv, .csv or .jsonl in a folder, or of a TensorFlow dataset.

    Raises:
      UserError: a file or a column is missing; a label of `dev` that `train` does not have.
    """
    from data_pipeline.tasks.labels import find_labels
    from data_pipeline.tasks.texts import read_table, read_test_table

    columns = (settings.text_column, settings.pair_column)
    train, dev = (
        read_table(require_part(data, part), *columns, settings.label_column) for part in ("train", "dev")
    )
    labels = find_labels(train) if kind == "classification" else ()
    parts = [
        encoder.encode(name, examples, _targets(kind, examples, labels))
        for name, examples in (("train", train), ("dev", dev))
    ]
    tests = []
    if file := find_part(data, "test"):
        test = read_test_table(file, *columns, settings.label_column)
        tests = [encoder.encode("test", test, _test_targets(kind, test, labels))]
    metrics: tuple[MetricName, ...]
    metrics = ("accuracy", "macro_f1", "matthews") if labels else ("spearman", "pearson")
    return TextData(kind, labels, metrics, parts[0].rows, parts[1:], tests)


def predict_texts(
    job: Prediction,
    records: "Iterator[Record]",
    example: "Callable[[Record], TextExample]",
    max_length: int,
    header: Header = "names",
) -> int:
    """Adds `label` and a probability for each label, or `value`, to every record of a table or JSONL.

    Args:
      records: of the input.
      example: a record -> its texts.
      header: whether a table begins with the names of its columns.
    """
    from data_pipeline.tasks.encode import make_task_tokenizer
    from data_pipeline.tasks.texts import text_rows

    tokenizer = make_task_tokenizer(job.tokenizer)

    def encode(records: "Sequence[Record]") -> "Rows":
        return text_rows([example(record) for record in records], tokenizer, max_length, {})

    say = functools.partial(describe, job.record.config.kind, job.record.labels)
    return predict_records(job, records, encode, say, header)


def _say_broken(places: "Sequence[Place]") -> None:
    if places:
        print(f"warning: left out {len(places)} lines without all columns, first {places[0]}")


class _Encoder:
    """Examples to parts, all with one tokenizer and one length."""

    def __init__(self, tokenizer: "Tokenizer", max_seq_length: int) -> None:
        from data_pipeline.tasks.encode import make_task_tokenizer

        self._tokenizer = make_task_tokenizer(tokenizer)
        self._max_seq_length = max_seq_length

    def encode(self, name: str, examples: "Sequence[TextExample]", targets: Mapping[str, np.ndarray]) -> Part:
        from data_pipeline.tasks.texts import text_rows

        return Part(name, text_rows(examples, self._tokenizer, self._max_seq_length, targets))


def _targets(
    kind: TextKind, examples: "Sequence[TextExample]", labels: Sequence[str]
) -> dict[str, np.ndarray]:
    from data_pipeline.tasks.labels import label_ids, label_values

    if kind == "regression":
        return {"values": label_values(examples)}
    return {"labels": label_ids(examples, labels)}


def _test_targets(
    kind: TextKind, examples: "Sequence[TextExample]", labels: Sequence[str]
) -> dict[str, np.ndarray]:
    """As `_targets`; empty if no example has a label."""
    from data_pipeline.tasks.labels import all_or_none, label_values, optional_label_ids

    if kind == "classification":
        return optional_label_ids(examples, labels)
    has_values = all_or_none((example.place, example.label is not None) for example in examples)
    return {"values": label_values(examples)} if has_values else {}


def _find_diagnostic(data: str) -> str | None:
    """Where GLUE's diagnostic set is, which models of MNLI predict; None if it is not there."""
    if tfds.is_tfds(data):
        return "tfds:glue/ax"
    return data if _glue_file(data, "diagnostic", "diagnostic.tsv").exists() else None


def _glue_file(data: str, folder: str, name: str) -> Path:
    inner = Path(data) / folder
    return (inner if inner.is_dir() else Path(data)) / name
