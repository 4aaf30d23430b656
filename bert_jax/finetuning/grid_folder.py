"""The layout of the folder that `bert-jax finetune` makes: a grid, with a folder for each cell.

Needs the standard library alone.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError, bad_input

BEST_FOLDER = "best"
CELLS_FOLDER = "cells"
GRID_FILE = "grid.json"
"""Names of the cells that the last command asked for."""
RESULT_FILE = "result.json"
"""Results of one cell."""
RESULTS_FILE = "results.json"
"""Results of all cells."""
REPORT_FILE = "report.json"
"""Figures of one cell by type of tag."""


def find_cell(folder: Path) -> Path:
    """The best cell in a folder that `bert-jax finetune` made; any other folder is returned as it is.

    Raises UserError if no cell of the grid is finished.
    """
    if (folder / BEST_FOLDER).exists():
        return folder / BEST_FOLDER
    if (folder / CELLS_FOLDER).is_dir() and not (folder / CONFIG_FILE).exists():
        raise not_finished(folder)
    return folder


def write_cells(folder: Path, names: Sequence[str]) -> None:
    """Writes which cells a command asks for; those of earlier commands are then no longer waited for."""
    write_json(folder / GRID_FILE, {"cells": names})


def warn_if_unfinished(folder: Path) -> None:
    """Prints a warning on standard error if a grid lacks cells that were asked for; one may be the best.

    Raises UserError if the file that names them is damaged.
    """
    file = folder / GRID_FILE
    if not file.exists():
        return  # a cell, or no grid
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        done = sum((folder / CELLS_FOLDER / cell / RESULT_FILE).exists() for cell in cells)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise bad_input(error, file, f"{file} cannot be read; run `bert-jax finetune` again") from None
    if done < len(cells):
        print(
            f"warning: the grid of {folder} is not finished: {done} of {len(cells)} cells done; "
            "the best of these is taken",
            file=sys.stderr,
        )


def not_finished(folder: Path) -> UserError:
    """The error of a grid or a cell whose training is not finished."""
    return UserError(f"{folder} is not finished; run its `bert-jax finetune` again, which resumes it")
