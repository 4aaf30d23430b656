"""Classification and regression on a user's own tables of texts or pairs."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from bert_jax.downstream.folds import FoldSettings
from bert_jax.downstream.labelled_data import LabelledData, label_texts, predict_texts
from bert_jax.downstream.predict_records import predict_records
from bert_jax.downstream.task_data import AppliedModel, Prediction
from data_pipeline.tasks.names import MetricName
from data_pipeline.tasks.parts import find_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.texts import TextExample

TableKind = Literal["classification", "regression"]

_METRICS: Mapping[TableKind, tuple[MetricName, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "regression": ("spearman", "pearson"),
}


@dataclasses.dataclass(frozen=True)
class TableSettings(FoldSettings):
    """A folder with train, dev and optionally test, each .tsv, .csv or .jsonl, or with one file named all in
    place of train and dev; or tfds:NAME, whose fields are the columns."""

    max_seq_length: int = 128
    """Most tokens of a text or pair; longer ones are cut."""
    text_column: str = "text"
    """Name of the column, or of the field of JSONL, with the text."""
    pair_column: str | None = None
    """Name of the column with the second text, if examples are pairs."""
    label_column: str = "label"
    """Name of the column with the label or the number."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> LabelledData:
        """Reads and encodes train, dev, and test if there is one.

        Raises:
          UserError: a file or a column is missing; a label of `dev` that `train` does not have.
        """
        from data_pipeline.tasks.encode import make_task_tokenizer
        from data_pipeline.tasks.labels import find_labels, label_targets, optional_label_targets
        from data_pipeline.tasks.texts import read_table, read_test_table, text_rows

        kind: TableKind = "regression" if task == "regress" else "classification"
        plain = make_task_tokenizer(tokenizer)
        encode = functools.partial(text_rows, tokenizer=plain, max_length=self.max_seq_length)
        columns = (self.text_column, self.pair_column, self.label_column)
        train, dev = self.read_train_and_dev(
            data, lambda file: read_table(file, *columns), lambda example: example.text
        )
        labels = () if kind == "regression" else find_labels(train)
        train_rows, dev_rows = (encode(part, targets=label_targets(part, labels)) for part in (train, dev))
        tests = {}
        if file := find_part(data, "test"):
            test = read_test_table(file, *columns)
            tests["test"] = encode(test, targets=optional_label_targets(test, labels, train))
        return LabelledData(kind, labels, _METRICS[kind], train_rows, {"dev": dev_rows}, tests)

    def predict_file(self, job: Prediction) -> int:
        """Predicts a table with the text columns that the model was trained on; labels are not needed."""
        from data_pipeline.tasks.records import read_records

        read = functools.partial(read_records, job.input, self._text_columns)
        predict = functools.partial(label_texts, model=job.model, max_length=self.max_seq_length)
        return predict_records(job, read, self._unlabelled, predict)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts texts, or pairs of texts if the model was trained on pairs."""
        return predict_texts(examples, self._text_columns, self._unlabelled, model, self.max_seq_length)

    @property
    def _text_columns(self) -> list[str]:
        """The column of the text, or the two columns of a pair."""
        return [name for name in (self.text_column, self.pair_column) if name is not None]

    def _unlabelled(self, record: "Record") -> "TextExample":
        from data_pipeline.tasks.texts import text_example

        return text_example(record, self.text_column, self.pair_column)
