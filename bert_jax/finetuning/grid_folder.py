"""The layout of the folder that `bert-jax finetune` makes: a grid, with a folder for each cell.

Needs the standard library alone.
"""

import sys
from pathlib import Path

from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.errors import UserError

BEST_FOLDER = "best"
CELLS_FOLDER = "cells"
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


def warn_if_unfinished(folder: Path) -> None:
    """Prints a warning on standard error if cells of a grid are not finished; one of them may be the best."""
    cells = [cell for cell in (folder / CELLS_FOLDER).glob("*/") if cell.is_dir()]
    done = sum((cell / RESULT_FILE).exists() for cell in cells)
    if done < len(cells):
        print(
            f"warning: the grid of {folder} is not finished: {done} of {len(cells)} cells done; "
            "the best of these is taken",
            file=sys.stderr,
        )


def not_finished(folder: Path) -> UserError:
    """The error of a grid or a cell whose training is not finished."""
    return UserError(f"{folder} is not finished; run its `bert-jax finetune` again, which resumes it")
