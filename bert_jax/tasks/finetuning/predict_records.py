"""Predicts the records of a file, and writes them with their predictions in the file's form, in parts."""

import collections
import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bert_jax.tasks.finetuning.task import Prediction
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.records import Record

T = TypeVar("T")

# Enough for full batches of similar length, few enough to hold in memory.
RECORDS_AT_ONCE = 4096
# Each record has a probability for every label, and those of a part are held in memory until it is written.
_PROBABILITIES_AT_ONCE = 1 << 18
# Even with many labels, a part has enough records to fill a batch.
_FEWEST_AT_ONCE = 64

_BYTE_ORDER_MARK = "\ufeff"  # tells Excel that a file is UTF-8


def predict_records(
    job: Prediction,
    read: Callable[[], Iterator[Record]],
    parse: Callable[[Record], T],
    predict: Callable[[Sequence[T]], Iterable[Mapping[str, Any]]],
    *,
    at_once: int | None = None,
) -> int:
    """Adds a prediction to every record and writes it.

    Args:
      job: its input is the file of the records.
      read: returns an iterator over the records, in the order of the file; called twice.
      parse: a record -> its example.
      predict: some examples -> a prediction for each.
      at_once: number of examples to predict at once; None: that of `records_at_once`.

    Returns:
      the number of records.
    """
    form = RecordForm(job.input, job.encoding)

    def examples() -> Iterator[tuple[Record, T]]:
        for record in read():
            form.check(record)
            yield record, parse(record)

    def lines() -> Iterator[list[str]]:
        size = at_once or records_at_once(len(job.model.record.labels))
        for part in in_parts(check_whole(examples), size):
            records = [record for record, _ in part]
            yield form.lines(records, predict([example for _, example in part]))

    return job.write_text(lines())


def check_whole(read: Callable[[], Iterator[T]]) -> Iterator[T]:
    """The items of `read`, after reading all of them once before without keeping them.

    So an error at the end of a long file is raised before the first batch is predicted.
    """
    collections.deque(read(), maxlen=0)
    return read()


def records_at_once(num_labels: int) -> int:
    """Number of records to predict at once; the more labels there are, the fewer."""
    of_labels = _PROBABILITIES_AT_ONCE // max(num_labels, 1)
    return min(RECORDS_AT_ONCE, max(of_labels, _FEWEST_AT_ONCE))


def in_parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last one may be shorter."""
    items = iter(items)
    while part := list(itertools.islice(items, size)):
        yield part


class RecordForm:
    """Writes records with their predictions in the form of a file: columns of a table, or a field of JSON."""

    def __init__(self, file: Path, encoding: str) -> None:
        self._suffix = file.suffix
        self._at_start = True
        self._encoding = encoding
        first = _first_line(file)
        self._mark = _BYTE_ORDER_MARK if first.startswith(_BYTE_ORDER_MARK.encode()) else ""  # of a table
        self._end = line_end(file)

    def check(self, record: Record) -> None:
        """Raises UserError if a JSON object already has the field to add; `lines` checks tables."""
        if self._suffix not in (".tsv", ".csv"):
            _add(record, {"prediction": None})

    def lines(self, records: Sequence[Record], predictions: Iterable[Mapping[str, Any]]) -> list[str]:
        """The text of each record; the very first one begins with the table's header, if it has one.

        Raises UserError if a prediction's name is taken, or its value cannot be written in the file's form.
        """
        pairs = zip(records, predictions, strict=True)
        if self._suffix not in (".tsv", ".csv"):
            objects = (_add(record, {"prediction": prediction}) for record, prediction in pairs)
            return [as_json(fields, encoding=self._encoding) + self._end for fields in objects]
        rows = [_add(record, _columns(prediction)) for record, prediction in pairs]
        texts = [self._line(list(row.values())) for row in rows]
        if self._at_start:
            if records[0].place.line > 1:  # the first line of the file has the names of its columns
                texts[0] = self._line(list(rows[0])) + texts[0]
            texts[0] = self._mark + texts[0]
            self._at_start = False
        return texts

    def _line(self, values: Sequence[Any]) -> str:
        """A line of a table."""
        if self._suffix == ".tsv":
            return "\t".join(map(_cell, values)) + self._end
        line = io.StringIO()
        # With this line end, csv quotes cells that hold \r, so that the file can be read again.
        csv.writer(line, lineterminator="\r\n").writerow(values)
        return line.getvalue().removesuffix("\r\n") + self._end


def as_json(value: Any, indent: int | None = None, encoding: str = "utf-8") -> str:
    """JSON without escapes; but with escapes if it has what the encoding lacks, such as a lone surrogate."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def _add(record: Record, found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record and of its prediction. Raises UserError if it already has such a field."""
    for name in found:
        if name in record.fields:
            raise UserError(f"{record.place.source} has {name}, which predict adds; rename it")
    return {**record.fields, **found}


def _columns(prediction: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a prediction adds to a table."""
    columns: dict[str, Any] = {}
    for name, value in prediction.items():
        if name == "probabilities":
            labelled = value if isinstance(value, Mapping) else dict(enumerate(value))
            columns |= {f"probability_{label}": p for label, p in labelled.items()}
        else:
            columns["predicted" if name in ("label", "value") else name] = value
    return columns


def line_end(file: Path) -> str:
    """The line end of a file's first line."""
    return "\r\n" if _first_line(file).endswith(b"\r\n") else "\n"


def _first_line(file: Path) -> bytes:
    with file.open("rb") as raw:
        return raw.readline()


def _cell(value: Any) -> str:
    text = str(value)
    if "\t" in text or "\n" in text:
        raise UserError(f"{text!r} has a tab or a line feed, which no .tsv can hold; give a .csv or .jsonl")
    return text
