"""Fine-tuned models in use: reads one from its folder and applies it to batches of rows."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from tokenizers import Tokenizer

from bert_jax.config import ParallelConfig
from bert_jax.finetuning.config import FineTuningConfig
from bert_jax.finetuning.grid_folder import find_cell, warn_if_unfinished
from bert_jax.finetuning.predict import NumpyBatch, predict
from bert_jax.finetuning.record import FineTuningRecord
from bert_jax.finetuning.tasks import make_task
from bert_jax.formats.finetuned import load_cell
from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from bert_jax.formats.pretrained import check_ids
from bert_jax.training.program import Program, make_program
from bert_jax.training.train_step import Params


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
