"""Multiple choice: SWAG, CODAH, and generic JSONL."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.model.dropout import Dropout
from bert_jax.model.packed_rows import is_instance
from bert_jax.task import Batch
from bert_jax.tasks.classify import Classification
from bert_jax.tasks.finetuning.features import pooled_features
from bert_jax.tasks.finetuning.head import IMPOSSIBLE, classifier, example_inputs, sequences_of
from bert_jax.tasks.finetuning.labelled_data import ACCURACY, LabelledData, scorers
from bert_jax.tasks.finetuning.outputs import outputs_of
from bert_jax.tasks.finetuning.predict_records import predict_records
from bert_jax.tasks.finetuning.task import AppliedModel, Prediction, TaskSettings
from data_pipeline.tasks.choice import (
    CHOICE_FIELDS,
    ChoiceExample,
    Flags,
    choice_rows,
    json_example,
    open_choices,
    read_choices,
)
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.labels import require_label
from data_pipeline.tasks.finetuning.records import Record, as_records
from data_pipeline.tasks.finetuning.splits import find_split


class ChoiceHead(nn.Module):
    """float32 [R, C]: a score for each sequence of a row; an empty sequence scores -10000."""

    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequences, width = sequences_of(batch)
        pooled = pooled_features(self.config, sequences, deterministic)
        pooled = Dropout(self.config.model.dropout_rate)(pooled, deterministic)
        scores = classifier(self.config.encoder, 1)(pooled)
        is_there = is_instance(sequences).reshape(-1, width)
        return jnp.where(is_there, scores.reshape(-1, width), IMPOSSIBLE)


class Choice(Classification):
    """One of a row's sequences, of which there are at most C. Targets: `labels` int32 [R]."""

    kind: ClassVar[str] = "choice"
    exports_as: ClassVar[TransformersHead | None] = TransformersHead("BertForMultipleChoice")

    @property
    def module(self) -> nn.Module:
        return ChoiceHead(self.config)

    def example_batch(self) -> dict[str, jax.Array]:
        return super().example_batch() | example_inputs((1, 2, 2))


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Questions with their choices, one of which is right."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> "ChoiceData":
        """Reads and encodes train, dev, and test if there is one."""
        plain = make_task_tokenizer(tokenizer)
        read = functools.partial(read_choices, encoding=self.encoding)
        names = ("full_data", "all")  # CODAH's, and anyone's
        train, dev = self.read_train_and_dev(data, read, lambda example: example.context, names)
        splits = {"train": train, "dev": dev}
        if file := find_split(Path(data), "test"):
            splits["test"] = read(file)
        for example in (*train, *dev):
            require_label(example.place, example.label)
        rows = {name: choice_rows(split, plain, self.max_seq_length) for name, split in splits.items()}
        train_rows, dev_rows = rows.pop("train"), rows.pop("dev")
        return ChoiceData((), scorers("accuracy"), train_rows, {"dev": dev_rows}, test=rows)

    def head(self, task: str, config: FineTuningConfig) -> Choice:
        """A score for each choice."""
        return Choice(config, (ACCURACY,))

    def predict_file(self, job: Prediction) -> int:
        """Predicts a file in one of the forms of the training data; its labels are ignored."""
        read, example = open_choices(job.input, job.encoding)

        def parse(record: Record) -> ChoiceExample:
            return example(record.without("label"))

        predict = functools.partial(self._predict, model=job.model)
        return predict_records(job, read, parse, predict)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"context", "choices"}, optionally with "question"."""
        records = as_records(examples, CHOICE_FIELDS)
        return list(self._predict([json_example(record.without("label")) for record in records], model))

    def _predict(self, examples: Sequence[ChoiceExample], model: AppliedModel) -> Iterator[dict[str, Any]]:
        rows = choice_rows(examples, model.plain_tokenizer, self.max_seq_length)
        return describe(outputs_of(rows, model.apply))


class ChoiceData(LabelledData):
    """Contexts with choices; the label of one is the index of the right choice."""

    def describe(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """The index of the choice and the probabilities of all."""
        return describe(outputs)

    def find_degenerate(self, outputs: np.ndarray) -> str | None:
        """One sentence if every choice has the same index, None if not."""
        chosen = set(outputs.argmax(-1).tolist())
        is_always_one = len(chosen) == 1 < len(outputs)
        return f"every choice has index {chosen.pop()}, counted from 0" if is_always_one else None


def describe(scores: np.ndarray) -> Iterator[dict[str, Any]]:
    """The predictions of examples from their scores [R, C]; a missing choice gets no probability."""
    for row in scores:
        probabilities = softmax(row[row > IMPOSSIBLE])
        yield {
            "label": int(row.argmax()),
            "probabilities": [round(float(p), 6) for p in probabilities],
        }
