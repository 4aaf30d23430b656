"""A fine-tuned model as it is used: read from its folder, applied to batches of rows."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bert_jax.checkpoints import load_params
from bert_jax.finetuning.config import make_task
from bert_jax.finetuning.predict import NumpyBatch, predict
from bert_jax.finetuning.record import FineTuningRecord, read_record
from bert_jax.parallel import Program, make_program
from bert_jax.train_step import Params

BEST_FOLDER = "best"
TOKENIZER_FILE = "tokenizer.json"


@dataclasses.dataclass(frozen=True, eq=False)
class FineTuned:
    """A model with its head, ready to predict."""

    record: FineTuningRecord
    tokenizer: Tokenizer
    program: Program
    params: Params

    def predict(self, batches: Iterable[NumpyBatch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `bert_jax.finetuning.predict.predict`."""
        return predict(self.program, self.params, batches)


def open_finetuned(folder: Path, batch_size: int) -> FineTuned:
    """Reads the folder that `bert-jax finetune` made, or that of one of its cells.

    Raises:
      UserError: no fine-tuned model; its checkpoint is damaged or was deleted.
    """
    if (folder / BEST_FOLDER).exists():
        folder = folder / BEST_FOLDER
    record = read_record(folder)
    _, params = load_params(folder)
    run = dataclasses.replace(record.config, global_batch_size=batch_size)
    program = make_program(make_task(record.config), run)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    return FineTuned(record, tokenizer, program, program.put_params(params))
