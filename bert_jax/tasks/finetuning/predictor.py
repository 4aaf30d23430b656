"""A fine-tuned model with its task, for predicting files (`bert-jax predict`) or examples in memory."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.config import ParallelConfig
from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.formats.finetuned import load_trial
from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from bert_jax.formats.pretrained import check_ids
from bert_jax.tasks import find_task
from bert_jax.tasks.finetuning.outputs import predict
from bert_jax.tasks.finetuning.task import AppliedModel, Prediction, TaskSettings
from bert_jax.training.program import make_program
from bert_jax.workdir.finetuning import FineTuningRecord
from bert_jax.workdir.grid import find_trial, warn_if_unfinished
from data_pipeline.directories import check_new_file
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.batches import evaluation_batches, lengths_up_to
from data_pipeline.tasks.finetuning.records import check_encoding
from data_pipeline.tasks.finetuning.rows import Rows


class Predictor:
    """A fine-tuned model, as `bert_jax.load_finetuned` returns it."""

    def __init__(
        self,
        directory: Path,
        batch_size: int,
        advance: Callable[[int], object] = lambda count: None,
        encoding: str = "utf-8",
    ) -> None:
        """Opens the model in a directory that `bert-jax finetune` made, or in that of one of its trials.

        If the grid is not finished, this is the best trial so far, and a warning is printed on standard
        error. The model runs on the devices at hand, whatever it was trained on.

        Args:
          directory: the directory.
          batch_size: rows to compute at once, rounded up so that the devices share them evenly.
          advance: called with the number of rows that were just predicted.
          encoding: of the files to predict, whatever that of the training data was.

        Raises:
          UserError: as `find_trial` and `load_trial`; no tokenizer, or a damaged one; another encoding is
            given for files that are always in UTF-8.
        """
        trial = find_trial(directory)
        record, params = load_trial(trial)
        warn_if_unfinished(directory)
        self._settings, self._encoding = _settings_of(record, trial, encoding), encoding
        config = prediction_run(record.config, batch_size)
        self._program = make_program(self._settings.head(record.task, config), config)
        self._params = self._program.put_params(params)
        tokenizer, _ = read_tokenizer(trial)
        self.labels = record.labels
        """Labels in the order of the model's outputs; empty for tasks without labels."""
        self.cut_warning: str | None = None
        """A warning if texts of the last prediction were cut, else None."""
        self._lengths = lengths_up_to(self._settings.max_seq_length)
        self._advance = advance
        self._num_cut = 0
        self._applied = AppliedModel(record, tokenizer, self._apply)

    def predict(self, examples: Iterable[Any]) -> list[Any]:
        """Predictions for examples in memory, as `bert-jax predict` makes them. The form depends on the task:

        | task | examples |
        |---|---|
        | GLUE, classify, regress | texts, or pairs of texts if the model was trained on pairs |
        | squad, squad2 | dicts of `question` and `context` |
        | ner, tag | lists of words; with `context` document, the sentences of one document, in order |
        | swag | dicts of `context` and `choices`, optionally with `question` |
        | relation | dicts of `text`, `head` and `tail`, the latter two dicts of `start` and `stop` |
        | rank | dicts of `query` and `candidates` |

        Texts beyond the maximum length of training are cut as in training, with a warning.

        Returns:
          for each example a dict, the `prediction` that the command writes into JSON lines, such as {"label":
          ..., "probabilities": {label: ...}}; for ner and tag a list of tags, one per word.

        Raises:
          UserError: `examples` is one text, dict or table, or some of them are not of their form.
        """
        if isinstance(examples, str | bytes | Mapping) or getattr(examples, "ndim", 1) != 1:
            raise UserError(f"predict takes a list of examples, not {type(examples).__name__}")
        examples = list(examples)
        if not examples:
            return []
        self._num_cut = 0
        found = self._settings.predict_examples(examples, self._applied)
        self._note_cut()
        if self.cut_warning:
            warnings.warn(self.cut_warning, stacklevel=2)
        return found

    def predict_file(self, source: Path | str, output: Path | str) -> int:
        """Predicts a file as `bert-jax predict` does, and returns the number of its examples.

        Raises:
          UserError: a file of another form; the output exists.
        """
        check_new_file(Path(output))
        self._num_cut = 0
        job = Prediction(self._applied, Path(source), Path(output), self._encoding)
        count = self._settings.predict_file(job)
        self._note_cut()
        return count

    def _apply(self, rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        record, tokenizer = self._applied.record, self._applied.tokenizer
        check_ids([rows.highest_id], record.config.model.vocab_size, tokenizer, record.trained_from)
        self._num_cut += rows.num_cut
        batches = evaluation_batches(rows, self._program.run.global_batch_size, self._lengths)
        for numbers, outputs in predict(self._program, self._params, batches):
            self._advance(len(numbers))
            yield numbers, outputs

    def _note_cut(self) -> None:
        longest = getattr(self._settings, self._settings.cut_by)
        cut = "text was" if self._num_cut == 1 else "texts were"
        self.cut_warning = f"{self._num_cut:,} {cut} cut to {longest} tokens" if self._num_cut else None


def prediction_run(config: FineTuningConfig, batch_size: int) -> FineTuningConfig:
    """The configuration for predicting on the devices at hand, whatever the model was trained on.

    The batch size is rounded up so that the devices share it evenly.
    """
    batch_size = math.ceil(batch_size / jax.device_count()) * jax.device_count()
    return dataclasses.replace(config, parallel=ParallelConfig(), global_batch_size=batch_size)


def _settings_of(record: FineTuningRecord, trial: Path, encoding: str) -> TaskSettings:
    check_encoding(encoding)
    try:
        defaults: Any = find_task(record.task).settings()
        settings = dataclasses.replace(defaults, **record.settings)
    except UserError as error:
        raise UserError(f"{trial} cannot be applied: {error}") from None
    except TypeError as error:
        raise UserError(f"{trial} was fine-tuned by another version of bert-jax: {error}") from None
    if encoding != "utf-8" and not hasattr(settings, "encoding"):
        raise UserError(f"files of {record.task} are always in UTF-8; leave --encoding out")
    return settings
