"""Results of a grid's finished cells: the best one, a table on the terminal, and `results.json`.

Every finished cell in the output folder counts, so that a grid may grow from run to run.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bert_jax.finetuning.config import Cell
from bert_jax.finetuning.grid_folder import (
    BEST_FOLDER,
    CELLS_FOLDER,
    REPORT_FILE,
    RESULT_FILE,
    RESULTS_FILE,
)
from data_pipeline.atomic import write_json

_FIELDS = [field.name for field in dataclasses.fields(Cell)]


def read_results(output: Path) -> list[dict[str, Any]]:
    """The results of the finished cells in the folder of a grid, sorted by their hyperparameters."""
    files = (output / CELLS_FOLDER).glob(f"*/{RESULT_FILE}")
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    for result in results:
        figures = result["figures"]
        result["figures"] = {name: math.nan if x is None else x for name, x in figures.items()}
        result.setdefault("diverged", None)
    return sorted(results, key=lambda result: dataclasses.astuple(cell_of(result)))


def cell_of(result: Mapping[str, Any]) -> Cell:
    """The cell that a result belongs to."""
    return Cell(**{name: result[name] for name in _FIELDS})


def best_of(results: Sequence[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The result with the highest `metric`, NaN counting as lowest; of ties the first."""
    return max(results, key=lambda result: _rank(result["figures"][metric]))


def write_results(output: Path, metric: str) -> None:
    """Writes `results.json`: the results of all finished cells, singly and over seeds, and the best one."""
    results = read_results(output)
    rows = _by_seed(results, metric)
    content = {"metric": metric, "best": best_of(results, metric), "cells": results, "rows": rows}
    write_json(output / RESULTS_FILE, content)


def report(output: Path, task: str, metric: str) -> None:
    """Prints a table of the cells, with seeds averaged, and the figures of the best cell."""
    results = read_results(output)
    best = best_of(results, metric)
    _print_table(f"{task}: {metric} on the development set", _by_seed(results, metric))
    _print_warnings(results)
    print_examples(best["examples"])
    # The figure that chose the best cell comes first.
    figures = {metric: best["figures"][metric], **best["figures"]}
    print(f"best: {best['cell']}: {'  '.join(f'{name} {value:.4g}' for name, value in figures.items())}")
    print(f"model and predictions: {output / BEST_FOLDER}")
    if (report_file := output / BEST_FOLDER / REPORT_FILE).exists():
        print(f"figures of each type: {report_file}")
    print(f"all figures: {output / RESULTS_FILE}")
    print(f"try it:  bert-jax predict --model {output} --input FILE --output FILE")


def print_examples(rows: Sequence[Mapping[str, str]]) -> None:
    """Prints a table of the best model's predictions, if the task has such examples."""
    if not rows:
        return
    table = Table(title="the best model on the development set")
    for name in rows[0]:
        table.add_column(name, no_wrap=name in ("rank", "score", "relevance"))
    for row in rows:
        table.add_row(*map(escape, row.values()))
    Console().print(table)


def _rank(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _by_seed(results: Sequence[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """One row for all cells that differ only in the seed."""
    groups: dict[Cell, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(dataclasses.replace(cell_of(result), seed=0), []).append(result)
    rows = []
    for cell, group in groups.items():
        values = [result["figures"][metric] for result in group]
        rows.append(
            {
                "learning_rate": cell.learning_rate,
                "batch_size": cell.batch_size,
                "epochs": cell.epochs,
                "seeds": len(values),
                "mean": float(np.mean(values)),
                "stdev": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
                "best": max(values, key=_rank),
                "degenerate": sum(result["degenerate"] is not None for result in group),
                "diverged": sum(result["diverged"] is not None for result in group),
            }
        )
    return rows


def _print_table(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    for name in ("learning rate", "batch", "epochs", "seeds", "mean", "stdev", "best"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['learning_rate']:g}",
            str(row["batch_size"]),
            f"{row['epochs']:g}",
            str(row["seeds"]),
            f"{row['mean']:.4g}",
            f"{row['stdev']:.2g}",
            f"{row['best']:.4g}",
        )
    Console().print(table)


def _print_warnings(results: Sequence[dict[str, Any]]) -> None:
    """Prints each warning once, however many cells it is about."""
    cells: dict[str, list[str]] = {}
    for result in results:
        if result["diverged"]:
            cells.setdefault(f"diverged: {result['diverged']}", []).append(result["cell"])
        elif result["degenerate"]:
            cells.setdefault(result["degenerate"], []).append(result["cell"])
    for warning, names in cells.items():
        which = names[0] if len(names) == 1 else f"{len(names)} of {len(results)} cells"
        print(f"warning: {which}: {warning}")
