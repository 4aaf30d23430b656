"""Relations of two marked entities: SemEval-2010 Task 8, and generic JSONL."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.model.dropout import Dropout
from bert_jax.task import Batch, Metric
from bert_jax.tasks.classify import Classification
from bert_jax.tasks.finetuning.features import sequence_features
from bert_jax.tasks.finetuning.head import classifier
from bert_jax.tasks.finetuning.labelled_data import (
    ACCURACY,
    MACRO_F1,
    LabelledData,
    predict_labels,
    scorers,
    take_labels,
)
from bert_jax.tasks.finetuning.predict_records import (
    check_whole,
    in_parts,
    line_end,
    predict_records,
    records_at_once,
)
from bert_jax.tasks.finetuning.task import AppliedModel, Prediction, TaskSettings
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.labels import label_targets, optional_label_targets
from data_pipeline.tasks.finetuning.records import Record, as_records, read_records
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.scores import Items, Scorer
from data_pipeline.tasks.finetuning.splits import (
    JSON_LINES,
    SplitName,
    find_split,
    is_json_lines,
    require_split,
)
from data_pipeline.tasks.relation import (
    RELATION_FIELDS,
    Flags,
    PlacedLines,
    RelationExample,
    parse_relation,
    parse_semeval,
    read_relations,
    read_semeval,
    relation_rows,
    semeval_counts,
    semeval_f1,
    split_semeval,
)

_SEMEVAL: Mapping[SplitName, tuple[str, ...]] = {
    "train": ("TRAIN_FILE",),
    "dev": ("TEST_FILE_FULL",),
    "test": ("TEST_FILE",),
}
_SUFFIXES = (*JSON_LINES, ".txt", ".TXT")


_SEMEVAL_F1 = Metric("semeval_f1", "SemEval F1")


class EntityPairHead(nn.Module):
    """float32 [R, L] from the states at the starts of two entities (Baldini Soares et al. 2019)."""

    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = sequence_features(self.config, batch, deterministic)
        lines, _, width = sequence_BTW.shape
        starts = batch["entity_positions"].reshape(lines, -1, 1)
        pair = jnp.take_along_axis(sequence_BTW, starts, axis=1).reshape(-1, 2 * width)
        pair = Dropout(self.config.model.dropout_rate)(pair, deterministic)
        return classifier(self.config.encoder, self.config.num_labels)(pair)


class Relation(Classification):
    """One of `num_labels` relations of two entities. Targets: `labels`, and `entity_positions` int32 [R, 2],
    the positions where head and tail begin."""

    kind: ClassVar[str] = "relation"
    exports_as: ClassVar[TransformersHead | None] = None

    @property
    def module(self) -> nn.Module:
        return EntityPairHead(self.config)

    def example_batch(self) -> dict[str, jax.Array]:
        return super().example_batch() | {"entity_positions": jnp.zeros((1, 2), jnp.int32)}

    def check(self, rows: Rows) -> None:
        if self.config.model.attention == "causal" and not self.config.features.lstm_layers:
            raise UserError(
                "relation reads entities where they begin, where a left-to-right --model has seen nothing of "
                "them; give one that reads both ways, or --features.lstm-layers 2"
            )


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Texts with two marked entities, and their relation."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> LabelledData:
        """Reads and encodes train, dev, and test if there is one."""
        del task
        directory = Path(data)
        train_file, dev_file = (
            require_split(directory, split, _SUFFIXES, _SEMEVAL[split]) for split in ("train", "dev")
        )
        test_file = find_split(directory, "test", _SUFFIXES, _SEMEVAL["test"])
        if dev_file.stem == _SEMEVAL["dev"][0]:
            print(
                f"note: SemEval-2010 Task 8 has no dev set: {dev_file.name}, its test set, is used as one "
                "and chooses the best trial"
            )
        train, dev = self._read(train_file), self._read(dev_file)
        labels = take_labels(train, dev)
        encode = functools.partial(
            relation_rows,
            tokenizer=make_task_tokenizer(tokenizer),
            max_length=self.max_seq_length,
            style=self.entities,
        )
        train_rows, dev_rows = (encode(split, targets=label_targets(split, labels)) for split in (train, dev))
        tests = {}
        if test_file:
            test = self._read(test_file)
            tests["test"] = encode(test, targets=optional_label_targets(test, labels, train))
        return LabelledData(labels, _scorers(labels), train_rows, {"dev": dev_rows}, tests)

    def head(self, task: str, config: FineTuningConfig) -> Relation:
        """A score of every relation for the two entities."""
        return Relation(config, (_SEMEVAL_F1, MACRO_F1, ACCURACY))

    def predict_file(self, job: Prediction) -> int:
        """Predicts a file in one of the forms of the training data; its labels are ignored."""
        if not is_json_lines(job.input):
            return self._predict_semeval(job)
        read = functools.partial(read_records, job.input, RELATION_FIELDS, job.encoding)
        predict = functools.partial(self._predict, model=job.model)
        return predict_records(job, read, _unlabelled, predict)

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"text", "head": {"start", "stop"}, "tail": {"start", "stop"}}."""
        records = as_records(examples, RELATION_FIELDS)
        return list(self._predict([_unlabelled(record) for record in records], model))

    def _predict_semeval(self, job: Prediction) -> int:
        """Writes each sentence with its relation and a comment with the probability, in SemEval's form."""
        end = line_end(job.input)

        def read() -> Iterator[tuple[PlacedLines, RelationExample]]:
            return ((lines, parse_semeval(lines)) for lines in split_semeval(job.input, job.encoding))

        def parts() -> Iterator[list[str]]:
            for part in in_parts(check_whole(read), records_at_once(len(job.model.record.labels))):
                found = self._predict([example for _, example in part], job.model)
                yield [
                    f"{lines[0][1]}{end}{one['label']}{end}"
                    f"Comment: probability {max(one['probabilities'].values())}{end}{end}"
                    for (lines, _), one in zip(part, found, strict=True)
                ]

        return job.write_text(parts())

    def _predict(self, examples: Sequence[RelationExample], model: AppliedModel) -> Iterator[dict[str, Any]]:
        rows = relation_rows(examples, model.plain_tokenizer, self.max_seq_length, self.entities, {})
        return predict_labels(rows, model)

    def _read(self, file: Path) -> list[RelationExample]:
        """The examples of a file, whose suffix decides its form."""
        return (read_relations if is_json_lines(file) else read_semeval)(file, self.encoding)


def _unlabelled(record: Record) -> RelationExample:
    return parse_relation(record.without("label"))


def _scorers(labels: Sequence[str]) -> dict[Metric, tuple[Scorer, Items]]:
    """SemEval's metric if there is Other and a label with a direction, else macro F1; and accuracy."""
    is_semeval = "Other" in labels and any("(" in label for label in labels)
    if not is_semeval:
        return scorers("macro_f1", "accuracy")
    f1 = functools.partial(semeval_f1, labels=labels)
    counts = functools.partial(semeval_counts, labels=labels)
    return {_SEMEVAL_F1: (f1, counts), **scorers("accuracy")}
