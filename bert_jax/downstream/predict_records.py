"""Predictions for the records of a file, written in the form of the file, a part at a time."""

import collections
import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bert_jax.downstream.task_data import Prediction
from data_pipeline.errors import UserError

if TYPE_CHECKING:
    from data_pipeline.tasks.records import Record

T = TypeVar("T")
Header = Literal["names", "none"]

# Enough for full batches of like length, few enough to hold.
RECORDS_AT_ONCE = 4096
# Of which each record has one for every label: what is said of a part is held until it is written.
_PROBABILITIES_AT_ONCE = 1 << 18
# However many labels there are, a batch is worth filling.
_FEWEST_AT_ONCE = 64

_BYTE_ORDER_MARK = "\ufeff"  # by which Excel knows UTF-8


def predict_records(
    job: Prediction,
    read: "Callable[[], Iterator[Record]]",
    parse: "Callable[[Record], T]",
    predict: Callable[[Sequence[T]], Iterable[Mapping[str, Any]]],
    *,
    header: Header = "names",
    at_once: int | None = None,
) -> int:
    """Adds a prediction to every record and writes it.

    Args:
      job: its input is the file of the records.
      read: begins to read the records, in the order of the file.
      parse: a record -> its example.
      predict: some examples -> what to say of each.
      header: whether a table begins with the names of its columns.
      at_once: examples that are predicted at once; None: as many as `records_at_once` says.

    Returns:
      number of records.
    """
    form = RecordForm(job.input, header)

    def examples() -> "Iterator[tuple[Record, T]]":
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
    """What `read` gives, which is read to its end once before, and nothing of it held.

    What is wrong at the end of a long file is known before the first batch, not after the last but one.
    """
    collections.deque(read(), maxlen=0)
    return read()


def records_at_once(num_labels: int) -> int:
    """How many records are held with what is said of them: the fewer, the more labels there are."""
    of_labels = _PROBABILITIES_AT_ONCE // max(num_labels, 1)
    return min(RECORDS_AT_ONCE, max(of_labels, _FEWEST_AT_ONCE))


def in_parts(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one perhaps shorter."""
    while part := list(itertools.islice(items, size)):
        yield part


class RecordForm:
    """Records with their predictions in the form of a file: a table's columns, or fields of JSON."""

    def __init__(self, file: Path, header: Header = "names") -> None:
        self._suffix = file.suffix
        self._header = header
        first = _first_line(file)
        self._mark = _BYTE_ORDER_MARK if first.startswith(_BYTE_ORDER_MARK.encode()) else ""  # of a table
        self._end = line_end(file)

    def check(self, record: "Record") -> None:
        """Raises UserError if an object of JSON has what is to be added; of a table the first part tells."""
        if self._suffix not in (".tsv", ".csv"):
            _add(record, {"prediction": None})

    def lines(self, records: "Sequence[Record]", predictions: Iterable[Mapping[str, Any]]) -> list[str]:
        """A text for each record; the names of a table's columns stand before the first of all.

        Raises UserError if the names or the values of a prediction do not fit into the file.
        """
        pairs = zip(records, predictions, strict=True)
        if self._suffix not in (".tsv", ".csv"):
            objects = (_add(record, {"prediction": prediction}) for record, prediction in pairs)
            return [as_json(fields) + self._end for fields in objects]
        rows = [_add(record, _columns(prediction)) for record, prediction in pairs]
        texts = [self._line(list(row.values())) for row in rows]
        if self._header == "names":
            texts[0] = self._line(list(rows[0])) + texts[0]
            self._header = "none"
        texts[0], self._mark = self._mark + texts[0], ""
        return texts

    def _line(self, values: Sequence[Any]) -> str:
        """A line of a table."""
        if self._suffix == ".tsv":
            return "\t".join(map(_cell, values)) + self._end
        line = io.StringIO()
        # Cells with a character of the line's end are quoted, and files with \r in one can be read again.
        csv.writer(line, lineterminator="\r\n").writerow(values)
        return line.getvalue().removesuffix("\r\n") + self._end


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON in its own characters; but escaped if one of them is half a character, which UTF-8 cannot hold."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def _add(record: "Record", found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record and what was found. Raises UserError if it has a field of that name."""
    for name in found:
        if name in record.fields:
            raise UserError(f"{record.place.source} has {name}, which predict adds; rename it")
    return {**record.fields, **found}


def _columns(prediction: Mapping[str, Any]) -> dict[str, Any]:
    """What a prediction adds to a line of a table."""
    columns: dict[str, Any] = {}
    for name, value in prediction.items():
        if name == "probabilities":
            shares = value if isinstance(value, Mapping) else dict(enumerate(value))
            columns |= {f"probability_{label}": share for label, share in shares.items()}
        else:
            columns["predicted" if name in ("label", "value") else name] = value
    return columns


def line_end(file: Path) -> str:
    """How the first line of a file ends."""
    return "\r\n" if _first_line(file).endswith(b"\r\n") else "\n"


def _first_line(file: Path) -> bytes:
    with file.open("rb") as raw:
        return raw.readline()


def _cell(value: Any) -> str:
    text = str(value)
    if "\t" in text or "\n" in text:
        raise UserError(f"{text!r} has a tab or a line feed, which no .tsv can hold; give a .csv or .jsonl")
    return text
