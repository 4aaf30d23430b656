"""The layout of the directory that `bert-jax finetune` makes: a grid, with a directory for each trial.

Works without jax.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.atomic import atomically, write_json
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json

BEST_DIRECTORY = "best"
TRIALS_DIRECTORY = "trials"
GRID_FILE = "grid.json"
"""Names of the trials that the last command asked for."""
RESULT_FILE = "result.json"
"""Results of one trial."""
ITEMS_FILE = "items.npz"
"""In the directory of a trial: `bert_jax.tasks.finetuning.task.Outcome.items`."""
RESULTS_FILE = "results.json"
"""Results of all trials."""
REPORT_FILE = "report.json"
"""Metrics of one trial by type of tag."""


def write_items(directory: Path, items: Mapping[str, np.ndarray]) -> None:
    """Writes the outcomes on the items of a dev set, whose arrays hold no objects."""
    with atomically(directory / ITEMS_FILE) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **items)


def find_trial(directory: Path) -> Path:
    """The best trial in a directory that `bert-jax finetune` made; any other directory is returned as it is.

    Raises UserError if no trial of the grid is finished.
    """
    if (directory / BEST_DIRECTORY).exists():
        return directory / BEST_DIRECTORY
    if (directory / TRIALS_DIRECTORY).is_dir() and not (directory / CONFIG_FILE).exists():
        raise not_finished(directory)
    return directory


def write_trials(directory: Path, names: Sequence[str]) -> None:
    """Writes which trials a command asks for; those of earlier commands are then no longer waited for."""
    write_json(directory / GRID_FILE, {"trials": names})


def warn_if_unfinished(directory: Path) -> None:
    """Prints a warning on standard error if a grid lacks trials that were asked for; one may be the best.

    Raises UserError if the file that names them is damaged.
    """
    done, asked = trials_done(directory)
    if done < asked:
        print(
            f"warning: the grid of {directory} is not finished: {done} of {asked} trials done; "
            "the best of these is taken",
            file=sys.stderr,
        )


def trials_done(directory: Path) -> tuple[int, int]:
    """How many of the trials that the last command asked for are done, and how many it asked for.

    0 and 0 for a directory that is no grid. Raises UserError if the file that names them is damaged.
    """
    file = directory / GRID_FILE
    if not file.exists():
        return 0, 0
    try:
        trials = load_json(file)["trials"]
        done = sum((directory / TRIALS_DIRECTORY / trial / RESULT_FILE).exists() for trial in trials)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise bad_input(error, file, f"{file} cannot be read; run `bert-jax finetune` again") from None
    return done, len(trials)


def not_finished(directory: Path) -> UserError:
    """The error of a grid or a trial whose training is not finished."""
    return UserError(f"{directory} is not finished; run its `bert-jax finetune` again, which resumes it")
