"""The numbers of a study as CSV files: each score that its tables are made of, and each difference.

Byte for byte the same whenever the results are.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.studies.results import StudyResults
from bert_jax.studies.tables import StudyTable
from data_pipeline.atomic import write_bytes

CSV_FILE = "results.csv"
DIFFERENCES_FILE = "differences.csv"


def write_csv_files(directory: Path, results: StudyResults, table: StudyTable) -> None:
    """Writes both files into the directory of a study."""
    _write(directory / CSV_FILE, _measurement_rows(results))
    _write(directory / DIFFERENCES_FILE, _difference_rows(table))


def _write(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Writes rows, of which None is an empty field."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_bytes(path, text.getvalue().encode())


def _measurement_rows(results: StudyResults) -> Iterator[Sequence[Any]]:
    """A line for each metric of each measured model, in the order of the study."""
    of_model = ("arm", "seed", "step", "measure", "hyperparameters", "finetuning_seed")
    yield (*of_model, "metric", "value", "degenerate", "diverged")
    for m in results.measurements:
        model = [getattr(m, name) for name in of_model]
        for metric, value in m.metrics.items():
            yield *model, metric, None if math.isnan(value) else float(value), m.degenerate, m.diverged


def _difference_rows(table: StudyTable) -> Iterator[Sequence[Any]]:
    """A line for each column of each two arms that are compared, in the order of the study."""
    yield "arm", "compared_with", "column", "difference", "low", "high", "seeds", "items", "paper"
    compared = [
        (arm, table.study.base, column, cell.difference, cell.published_difference)
        for (arm, column), cell in table.cells.items()
    ]
    compared += [
        (arm, other, column, difference, None)
        for (arm, other), of_columns in table.between_arms.items()
        for column, difference in of_columns.items()
    ]
    for arm, other, column, found, paper in compared:
        if found is not None:
            low, high = found.interval or (None, None)
            yield arm, other, column, found.mean, low, high, found.num_seeds, found.num_items, paper
