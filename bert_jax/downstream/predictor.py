"""A fine-tuned model with its task, for predicting files (`bert-jax predict`) or examples in memory."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.downstream import TASKS, Settings
from bert_jax.downstream.task_data import AppliedModel, Prediction
from bert_jax.finetuning.finetuned import FineTunedModel
from data_pipeline.errors import UserError
from data_pipeline.tasks.batches import evaluation_batches, lengths_up_to
from data_pipeline.tasks.rows import Rows


class Predictor:
    """A fine-tuned model, as `bert_jax.load_finetuned` returns it."""

    def __init__(self, model: FineTunedModel, advance: Callable[[int], object] = lambda count: None) -> None:
        """Args: the model; a function to call with the number of rows that were just predicted."""
        record = model.record
        self.labels = record.labels
        """Labels in the order of the model's outputs; empty for tasks without labels."""
        self.cut_warning: str | None = None
        """A warning if texts of the last prediction were cut, else None."""
        self._task = TASKS[record.task]
        self._settings: Settings = dataclasses.replace(self._task.settings, **record.settings)  # type: ignore[type-var]
        self._lengths = lengths_up_to(self._settings.max_seq_length)
        self._advance = advance
        self._num_cut = 0
        self._model = model
        self._applied = AppliedModel(record, model.tokenizer, self._apply)

    def predict(self, examples: Iterable[Any]) -> list[Any]:
        """Predictions for examples in memory, as `bert-jax predict` makes them. The form depends on the task:

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

    def predict_file(self, source: Path, output: Path) -> int:
        """Predicts a file as `bert-jax predict` does, and returns the number of its examples.

        Raises:
          UserError: a file of another form.
        """
        self._num_cut = 0
        count = self._settings.predict_file(Prediction(self._applied, source, output))
        self._note_cut()
        return count

    def _apply(self, rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        self._model.check_ids([rows.highest_id])
        self._num_cut += rows.num_cut
        batches = evaluation_batches(rows, self._model.batch_size, self._lengths)
        for numbers, outputs in self._model.predict(batches):
            self._advance(len(numbers))
            yield numbers, outputs

    def _note_cut(self) -> None:
        longest = getattr(self._settings, self._task.cut_by)
        cut = "text was" if self._num_cut == 1 else "texts were"
        self.cut_warning = f"{self._num_cut:,} {cut} cut to {longest} tokens" if self._num_cut else None
