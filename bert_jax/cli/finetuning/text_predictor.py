"""A fine-tuned classifier or regressor applied to texts in Python."""

import warnings
from collections.abc import Sequence
from typing import Any, cast

from bert_jax.finetuning.finetuned import FineTuned
from bert_jax.finetuning.labels import describe
from bert_jax.finetuning.predict import gather
from bert_jax.finetuning.record import FineTuningRecord
from bert_jax.inference import Text
from data_pipeline.errors import UserError
from data_pipeline.tasks.batches import evaluation_batches, lengths_up_to
from data_pipeline.tasks.encode import encode_pairs, encode_texts, make_rows, make_task_tokenizer
from data_pipeline.tasks.glue_tasks import GLUE_TASKS
from data_pipeline.tasks.names import GlueName
from data_pipeline.tasks.rows import Rows

_KINDS = ("classification", "regression")


class TextPredictor:
    """A model of one of GLUE's tasks, `classify` or `regress`, ready for texts or pairs of texts."""

    def __init__(self, model: FineTuned) -> None:
        """Raises UserError if the model answers something else than texts with labels or numbers."""
        record = model.record
        if record.config.kind not in _KINDS:
            raise UserError(
                f"a model of {record.task} is applied to files, by `bert-jax predict`; "
                "load_finetuned takes those of GLUE, classify and regress"
            )
        self.labels = record.labels
        """In the order of the model's outputs; empty of a regressor."""
        self._model = model
        self._tokenizer = make_task_tokenizer(model.tokenizer)
        self._longest = int(record.settings["max_seq_length"])
        self._takes_pairs = _takes_pairs(record)

    def predict(self, texts: Sequence[Text]) -> list[dict[str, Any]]:
        """What `bert-jax predict` would say of texts.

        Args:
          texts: strings, or pairs of strings if the model was trained on pairs; a text longer than in
            training is cut as there, with a warning.

        Returns:
          for each text {"label": ..., "probabilities": {label: ...}}, or of a regressor {"value": ...}.

        Raises:
          UserError: `texts` is one string, or some of them are not as the model was trained: pairs, or texts
            on their own.
        """
        if isinstance(texts, str):
            raise UserError("predict takes a list of texts, not one string")
        if not texts:
            return []
        rows = self._encode(texts)
        self._model.check_ids([rows.highest_id])
        if rows.num_cut:
            warnings.warn(
                f"{rows.num_cut} of {len(texts)} texts were cut to {self._longest} tokens", stacklevel=2
            )
        batches = evaluation_batches(rows, self._model.batch_size, lengths_up_to(self._longest))
        outputs = gather(self._model.predict(batches), len(rows))
        return list(describe(self._model.record.config.kind, self.labels, outputs))

    def _encode(self, texts: Sequence[Text]) -> Rows:
        singles = [text for text in texts if isinstance(text, str)]
        pairs = [text for text in texts if not isinstance(text, str)]
        if singles and pairs:
            raise UserError("some texts are pairs and some are not; give all as the model was trained on")
        if singles and self._takes_pairs:
            raise UserError("the model was trained on pairs of texts; give each as (text, other text)")
        if pairs and not self._takes_pairs:
            raise UserError("the model was trained on texts on their own; give strings, not pairs of them")
        if singles:
            return make_rows(encode_texts(self._tokenizer, singles, self._longest), {})
        firsts, seconds = zip(*pairs, strict=True)
        return make_rows(encode_pairs(self._tokenizer, firsts, seconds, self._longest), {})


def _takes_pairs(record: FineTuningRecord) -> bool:
    """Whether the examples that a model was trained on had two texts each."""
    if record.task in GLUE_TASKS:
        return len(GLUE_TASKS[cast(GlueName, record.task)].columns) > 1
    return record.settings.get("pair_column") is not None
