"""Examples of text classification and regression: a text or a pair of texts, and its label or value."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, encode_pairs, encode_texts
from data_pipeline.tasks.finetuning.folds import FoldFlags
from data_pipeline.tasks.finetuning.records import Place, Record, read_records
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tfds import TfdsSplit


@dataclasses.dataclass(frozen=True)
class Flags(FoldFlags):
    """A directory with train, dev and optionally test, each .tsv, .csv or .jsonl, or with one file named all
    in place of train and dev; or tfds:NAME, whose fields are the columns."""

    max_seq_length: int = 128
    """Maximum length of a text or pair, in tokens; longer ones are truncated."""
    text_column: str = "text"
    """Name of the column, or of the field of JSONL, with the text; a number, from 0, in a table without a
    line of names."""
    pair_column: str | None = None
    """Name of the column with the second text, if examples are pairs."""
    label_column: str = "label"
    """Name of the column with the label or the number."""
    encoding: str = "utf-8"
    """Encoding of the files, such as latin-1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = {"--text-column": self.text_column, "--label-column": self.label_column}
        if self.pair_column is not None:
            columns["--pair-column"] = self.pair_column
        for (flag, name), (other, same) in itertools.combinations(columns.items(), 2):
            if name == same:
                raise UserError(f"{flag} and {other} both name {name}; give two columns")


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text or a pair of texts; either all examples of a set are pairs or none is."""

    place: Place
    text: str
    pair: str | None
    label: str | None
    """A class or a number as it is written in the file; None in texts to predict."""


def read_table(
    file: Path | TfdsSplit, columns: Sequence[str], label: str | None = None, encoding: str = "utf-8"
) -> list[TextExample]:
    """Examples of a user's .tsv, .csv or .jsonl file, or of a TensorFlow dataset.

    Args:
      columns: column of the text, or the two columns of a pair.
      label: column of the label; without it, the file holds texts to predict.

    Raises:
      UserError: as `read_records`; an empty first text or label.
    """
    needed = columns if label is None else (*columns, label)
    return [text_example(record, columns, label) for record in read_records(file, needed, encoding)]


def read_test_table(
    file: Path | TfdsSplit, columns: Sequence[str], label: str, encoding: str = "utf-8"
) -> list[TextExample]:
    """As `read_table`, but the label column may be missing, and labels may be blank."""
    return [
        dataclasses.replace(text_example(record, columns), label=record.label(label))
        for record in read_records(file, columns, encoding)
    ]


def text_example(record: Record, columns: Sequence[str], label: str | None = None) -> TextExample:
    """The example of one record. The second text of a pair may be empty.

    Raises UserError if the first one or the label is.
    """
    first, *second = columns
    pair = [record.text(name) if not record.is_blank(name) else "" for name in second]
    return TextExample(
        place=record.place,
        text=record.text(first),
        pair=pair[0] if pair else None,
        label=None if label is None else record.word(label),
    )


def text_rows(
    examples: Sequence[TextExample],
    tokenizer: TaskTokenizer,
    max_length: int,
    targets: Mapping[str, np.ndarray],
) -> Rows:
    """One row per example, at most `max_length` tokens long.

    Args:
      targets: the result of `label_targets`, or empty for texts to predict.
    """
    texts = [example.text for example in examples]
    pairs = [example.pair for example in examples if example.pair is not None]
    if not pairs:
        return encode_texts(tokenizer, texts, max_length, targets)
    return encode_pairs(tokenizer, texts, pairs, max_length, targets)
