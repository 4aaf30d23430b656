"""Fine-tuned models in use: reads one from its folder and applies it to batches of rows."""

import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from tokenizers import Tokenizer

from bert_jax.config import ParallelConfig
from bert_jax.finetuning.config import FineTuningConfig
from bert_jax.finetuning.predict import NumpyBatch, predict
from bert_jax.finetuning.record import FineTuningRecord, read_record
from bert_jax.finetuning.tasks import make_task
from bert_jax.formats.configuration import read_json
from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from bert_jax.formats.pretrained import check_ids
from bert_jax.training.checkpoints import load_params, saved_steps
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import Params
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.errors import UserError

BEST_FOLDER = "best"
CELLS_FOLDER = "cells"
TOKENIZER_FILE = "tokenizer.json"
RESULT_FILE = "result.json"
"""Results of one cell."""
RESULTS_FILE = "results.json"
"""Results of all cells."""
REPORT_FILE = "report.json"
"""Figures of one cell by type of tag."""


@dataclasses.dataclass(frozen=True, eq=False)
class FineTunedModel:
    """A model with its head, ready to predict."""

    record: FineTuningRecord
    tokenizer: Tokenizer
    program: Program
    params: Params

    @property
    def batch_size(self) -> int:
        """Rows per batch: the number asked for, rounded up so that the devices share it evenly."""
        return self.program.run.global_batch_size

    def check_ids(self, ids: Sequence[int]) -> None:
        """As `PretrainedModel.check_ids`."""
        check_ids(ids, self.record.config.model.vocab_size, self.tokenizer, self.record.trained_from)

    def predict(self, batches: Iterable[NumpyBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `bert_jax.finetuning.predict.predict`."""
        return predict(self.program, self.params, batches)


def find_cell(folder: Path) -> Path:
    """The best cell in a folder that `bert-jax finetune` made; any other folder is returned as it is.

    Raises UserError if no cell of the grid is finished.
    """
    if (folder / BEST_FOLDER).exists():
        return folder / BEST_FOLDER
    if (folder / CELLS_FOLDER).is_dir() and not (folder / CONFIG_FILE).exists():
        raise _unfinished(folder)
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


def load_cell(folder: Path) -> tuple[FineTuningRecord, Params]:
    """A cell's record, and its parameters as numpy arrays.

    Raises:
      UserError: the folder is no fine-tuned model's; training is not finished or diverged; the checkpoint is
        damaged or was deleted.
    """
    record = read_record(folder)
    if not (folder / RESULT_FILE).exists():
        raise _unfinished(folder)
    if why := read_json(folder / RESULT_FILE).get("diverged"):
        # Its checkpoint is from the middle of training.
        raise UserError(f"{folder} diverged: {why}; train with a lower --learning-rate")
    if not saved_steps(folder):
        raise UserError(f"{folder} has no checkpoint; of the finished cells only the best one keeps its own")
    return record, load_params(folder)[1]


def open_finetuned(folder: Path, batch_size: int) -> FineTunedModel:
    """Opens the model in a folder that `bert-jax finetune` made, or in that of one of its cells.

    If the grid is not finished, this is the best cell so far, and a warning is printed on standard error.
    The model runs on the devices at hand, whatever it was trained on.

    Raises:
      UserError: as `find_cell` and `load_cell`; the tokenizer is missing or damaged.
    """
    cell = find_cell(folder)
    record, params = load_cell(cell)
    warn_if_unfinished(folder)
    program = make_program(make_task(record.config), prediction_run(record.config, batch_size))
    tokenizer, _ = read_tokenizer(cell)
    return FineTunedModel(record, tokenizer, program, program.put_params(params))


def prediction_run(config: FineTuningConfig, batch_size: int) -> FineTuningConfig:
    """The configuration for predicting on the devices at hand, whatever the model was trained on.

    The batch size is rounded up so that the devices share it evenly.
    """
    batch_size = math.ceil(batch_size / jax.device_count()) * jax.device_count()
    return dataclasses.replace(config, parallel=ParallelConfig(), global_batch_size=batch_size)


def _unfinished(folder: Path) -> UserError:
    return UserError(f"{folder} is not finished; run its `bert-jax finetune` again, which resumes it")
