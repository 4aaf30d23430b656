"""Documents from tables, one per row: TSV, CSV and Parquet."""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet

from data_pipeline.errors import UserError, bad_input
from data_pipeline.names import EncodingErrors
from data_pipeline.preparing.text_lines import decode

_ROWS_AT_ONCE = 1024
_BYTES_AT_ONCE = 1 << 20  # of a column


def read_tsv(lines: Iterable[str], path: Path, field: str) -> Iterator[str]:
    """The texts of a column; the first line names the columns. Quotation marks are ordinary characters.

    Raises UserError if there is no such column, or a row has another number of columns than the first.
    """
    stripped = (line.rstrip("\r\n") for line in lines)
    return _column((line.split("\t") if line else [] for line in stripped), path, field)


def read_csv(lines: Iterable[str], path: Path, field: str) -> Iterator[str]:
    """The texts of a column; the first line names the columns. Texts in quotation marks may span lines.

    Raises UserError as `read_tsv`, and for a line that is not CSV.
    """
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(lines, strict=True)
    try:
        yield from _column(rows, path, field)
    except csv.Error as error:
        reason = str(error).partition(" - ")[0]  # what follows is advice to programmers
        raise UserError(f"{path}, line {rows.line_num} is not CSV: {reason}") from None


def read_parquet(
    raw: IO[bytes], path: Path, field: str, errors: EncodingErrors, on_bytes: Callable[[int], None]
) -> Iterator[str]:
    """The texts of a column, without empty and null ones; `on_bytes` gets the rows' part of the file size.

    Raises:
      UserError: the open file is damaged, has no such column, or a text that is not UTF-8.
      Unfinished: the disk or the network failed.
    """
    try:
        # By default the column's data of all row groups would stay in memory.
        with pa.parquet.ParquetFile(raw, pre_buffer=False, buffer_size=_BYTES_AT_ONCE) as file:
            texts = [column.name for column in file.schema_arrow if _is_text(column.type)]
            _check_field(path, field, texts, "column of text")
            bytes_per_row = os.fstat(raw.fileno()).st_size / max(file.metadata.num_rows, 1)
            rows = 0
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[field]):
                # Read as bytes and decoded here, because the strings of a Parquet file need not be UTF-8.
                for text in batch.column(0).cast(pa.large_binary()).to_pylist():
                    rows += 1
                    if text:
                        yield decode(text, errors, f"{path}, row {rows}")
                on_bytes(round(bytes_per_row * len(batch)))
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise bad_input(error, path, f"{path} is no whole Parquet file: {error}") from None


def _column(rows: Iterable[Sequence[str]], path: Path, field: str) -> Iterator[str]:
    """The texts of a column of `rows`, without the empty rows, which count in messages all the same."""
    filled = ((number, row) for number, row in enumerate(rows, start=1) if row)
    _, names = next(filled, (1, []))
    if not names:
        raise UserError(f"{path} has no lines; the first must name the columns")
    _check_field(path, field, names, "column")
    place = names.index(field)
    for number, row in filled:
        if len(row) != len(names):
            raise UserError(f"{path}, row {number} has {len(row)} columns instead of {len(names)}")
        yield row[place]


def _check_field(path: Path, field: str, names: Sequence[str], what: str) -> None:
    if field not in names:
        raise UserError(f"{path} has no {what} {field} (--text-field); it has {', '.join(names) or 'none'}")
    if names.count(field) > 1:
        raise UserError(f"{path} has two columns named {field}; rename one, or name another by --text-field")


def _is_text(kind: pa.DataType) -> bool:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return values in (pa.string(), pa.large_string(), pa.string_view())
