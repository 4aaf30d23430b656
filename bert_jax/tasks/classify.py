"""Classification and regression of texts and pairs, from a user's own tables."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.model.dropout import Dropout
from bert_jax.task import Batch, Sums
from bert_jax.tasks.finetuning.features import pooled_features
from bert_jax.tasks.finetuning.head import Head, class_sums, classifier, example_inputs, real_rows
from bert_jax.tasks.finetuning.labelled_data import (
    LabelledData,
    label_texts,
    predict_texts,
    scorers,
    take_labels,
)
from bert_jax.tasks.finetuning.predict_records import predict_records
from bert_jax.tasks.finetuning.task import AppliedModel, Prediction, TaskSettings
from data_pipeline.tasks.classify import Flags, read_table, read_test_table, text_example, text_rows
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.labels import label_targets, optional_label_targets
from data_pipeline.tasks.finetuning.records import read_records
from data_pipeline.tasks.finetuning.splits import find_split


class PooledHead(nn.Module):
    """float32 [R, L] from one vector per row (`pooled_features`), for tasks of sentences and pairs."""

    config: FineTuningConfig
    num_labels: int

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        pooled_RW = pooled_features(self.config, batch, deterministic)
        pooled_RW = Dropout(self.config.model.dropout_rate)(pooled_RW, deterministic)
        return classifier(self.config.encoder, self.num_labels)(pooled_RW)


class Classification(Head):
    """One of `num_labels` labels for a text or a pair. Targets: `labels` int32 [R]."""

    kind: ClassVar[str] = "classification"
    exports_as: ClassVar[TransformersHead | None] = TransformersHead("BertForSequenceClassification")

    @property
    def module(self) -> nn.Module:
        return PooledHead(self.config, self.config.num_labels)

    def example_batch(self) -> dict[str, jax.Array]:
        return example_inputs() | {"labels": jnp.zeros((1,), jnp.int32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return class_sums(outputs, batch["labels"].reshape(-1), real_rows(batch))


class Regression(Head):
    """A number for a text or a pair, by mean squared error. Targets: `values` float32 [R]."""

    kind: ClassVar[str] = "regression"
    exports_as: ClassVar[TransformersHead | None] = TransformersHead(
        "BertForSequenceClassification", problem_type="regression"
    )

    @property
    def module(self) -> nn.Module:
        return PooledHead(self.config, num_labels=1)

    def example_batch(self) -> dict[str, jax.Array]:
        return example_inputs() | {"values": jnp.zeros((1,), jnp.float32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        errors = jnp.square(outputs[:, 0] - batch["values"].reshape(-1))
        return {"loss": (errors * real_rows(batch)).sum()}


_LABEL_SCORERS = scorers("accuracy", "macro_f1", "matthews")
_NUMBER_SCORERS = scorers("spearman", "pearson")


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Tables of texts or pairs, and a label or a number for each."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> LabelledData:
        """Reads and encodes train, dev, and test if there is one.

        Raises:
          UserError: a file or a column is missing; a label of `test` that neither `train` nor `dev` has.
        """
        plain = make_task_tokenizer(tokenizer)
        encode = functools.partial(text_rows, tokenizer=plain, max_length=self.max_seq_length)
        form = (self._text_columns, self.label_column, self.encoding)
        train, dev = self.read_train_and_dev(
            data, lambda file: read_table(file, *form), lambda example: example.text
        )
        labels = () if task == "regress" else take_labels(train, dev)
        train_rows, dev_rows = (encode(split, targets=label_targets(split, labels)) for split in (train, dev))
        tests = {}
        if file := find_split(data, "test"):
            test = read_test_table(file, *form)
            tests["test"] = encode(test, targets=optional_label_targets(test, labels, train))
        scorers = _LABEL_SCORERS if labels else _NUMBER_SCORERS
        return LabelledData(labels, scorers, train_rows, {"dev": dev_rows}, tests)

    def head(self, task: str, config: FineTuningConfig) -> Head:
        """A label's score for each text, or a number."""
        if task == "regress":
            return Regression(config, tuple(_NUMBER_SCORERS))
        return Classification(config, tuple(_LABEL_SCORERS))

    def predict_file(self, job: Prediction) -> int:
        """Predicts a table with the text columns that the model was trained on; labels are not needed."""
        columns = self._text_columns
        read = functools.partial(read_records, job.input, columns, job.encoding)
        parse = functools.partial(text_example, columns=columns)
        predict = functools.partial(label_texts, model=job.model, max_length=self.max_seq_length)
        return predict_records(job, read, parse, predict)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts texts, or pairs of texts if the model was trained on pairs."""
        return predict_texts(examples, self._text_columns, text_example, model, self.max_seq_length)

    @property
    def _text_columns(self) -> list[str]:
        """The column of the text, or the two columns of a pair."""
        return [name for name in (self.text_column, self.pair_column) if name is not None]
