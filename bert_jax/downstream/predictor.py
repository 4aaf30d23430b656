"""A fine-tuned model with its task: `bert-jax predict` gives it files, Python gives it examples."""

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
    """What `bert_jax.load_finetuned` gives."""

    def __init__(self, model: FineTunedModel, advance: Callable[[int], object] = lambda count: None) -> None:
        """Args: the model; what to call with the number of rows that were computed."""
        record = model.record
        self.labels = record.labels
        """In the order of the model's outputs; empty of tasks without labels."""
        self.cut_warning: str | None = None
        """What to say if texts of the last prediction were cut."""
        self._task = TASKS[record.task]
        self._settings: Settings = dataclasses.replace(self._task.settings, **record.settings)  # type: ignore[type-var]
        self._lengths = lengths_up_to(self._settings.max_seq_length)
        self._advance = advance
        self._num_cut = 0
        self._model = model
        self._applied = AppliedModel(record, model.tokenizer, self._apply)

    def predict(self, examples: Iterable[Any]) -> list[Any]:
        """What `bert-jax predict` would say of examples in memory. The task tells their form:

        | GLUE, classify, regress | texts, or pairs of texts if the model was trained on pairs |
        | squad, squad2 | dicts of `question` and `context` |
        | ner, tag | lists of words; with `context` document, sentences of one document in its order |
        | swag | dicts of `context` and `choices`, perhaps with `question` |
        | relation | dicts of `text`, `head` and `tail`, the latter two dicts of `start` and `stop` |
        | rank | dicts of `query` and `candidates` |

        A text longer than in training is cut as there, with a warning.

        Returns:
          for each example a dict, the `prediction` that the command writes into JSON lines, such as {"label":
          ..., "probabilities": {label: ...}}; of ner and tag a list of tags, one a word.

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
        """What `bert-jax predict` does with a file; the number of its examples.

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
