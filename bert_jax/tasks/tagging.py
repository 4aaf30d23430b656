"""Named entities, and any other tags of words, from column files such as CoNLL's."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig, TransformersHead
from bert_jax.model.dropout import Dropout
from bert_jax.task import Batch, Metric, Sums
from bert_jax.tasks.finetuning.features import token_features
from bert_jax.tasks.finetuning.head import Head, class_sums, classifier, example_inputs
from bert_jax.tasks.finetuning.labelled_data import ACCURACY
from bert_jax.tasks.finetuning.predict_records import check_whole
from bert_jax.tasks.finetuning.task import (
    AppliedModel,
    Apply,
    Outcome,
    Prediction,
    TaskData,
    TaskSettings,
    join_splits,
)
from bert_jax.workdir.grid import REPORT_FILE
from data_pipeline import tfds
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, make_task_tokenizer
from data_pipeline.tasks.finetuning.labels import listed
from data_pipeline.tasks.finetuning.records import check_unicode, example_place
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.splits import SplitName, find_split, require_split
from data_pipeline.tasks.tagging import Flags
from data_pipeline.tasks.tagging.columns import (
    Columns,
    Sentence,
    check_writable,
    has_tags,
    iterate_columns,
    read_columns,
    tags_in_scheme,
    write_columns,
)
from data_pipeline.tasks.tagging.rows import (
    TaggingRows,
    collect_tags,
    list_tags,
    make_tagging_rows,
)
from data_pipeline.tasks.tagging.scores import (
    count_entities,
    count_words,
    report_entities,
    report_words,
    score_entities,
    score_words,
)
from data_pipeline.tfds import TfdsSplit

# Enough for full batches of similar length, few enough to hold in memory.
_SENTENCES_AT_ONCE = 1024

_CONLL: Mapping[SplitName, tuple[str, ...]] = {
    "train": ("eng.train",),
    "dev": ("testa", "eng.testa"),
    "test": ("testb", "eng.testb"),
}
_SUFFIXES = ("", ".txt", ".tsv", ".conll", ".conllu", ".bio", ".iob", ".iob2")

_ENTITY_METRICS = (
    Metric("f1", "F1", in_percent=True),
    Metric("precision", "precision", in_percent=True),
    Metric("recall", "recall", in_percent=True),
)
_WORD_METRICS = (
    Metric("accuracy", "accuracy", in_percent=True),
    Metric("macro_f1", "macro F1", in_percent=True),
)

# What is right counts 100, as the metrics are in percent; what is predicted and what is true, 1.
_PERCENT = np.array([100, 1, 1])


class TokenHead(nn.Module):
    """float32 [B, T, L]: a score of every label at every position."""

    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequence_BTW = token_features(self.config, batch, deterministic)
        sequence_BTW = Dropout(self.config.model.dropout_rate)(sequence_BTW, deterministic)
        return classifier(self.config.encoder, self.config.num_labels)(sequence_BTW)


class Tagging(Head):
    """One of `num_labels` tags for some tokens. Targets: `tag_ids` int32 [B, T], -1 for none."""

    kind: ClassVar[str] = "tagging"
    exports_as: ClassVar[TransformersHead | None] = TransformersHead("BertForTokenClassification")

    @property
    def module(self) -> nn.Module:
        return TokenHead(self.config)

    def example_batch(self) -> dict[str, jax.Array]:
        inputs = example_inputs()
        return inputs | {"tag_ids": inputs["input_ids"]}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        return class_sums(outputs, batch["tag_ids"], batch["tag_ids"] >= 0)

    def count_targets(self, batch: Batch) -> jax.Array:
        return (batch["tag_ids"] >= 0).astype(jnp.float32).sum()


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Words in columns, and a tag for each."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> "TaggingData":
        """Reads and encodes train, dev, and test if there is one."""
        del task
        plain = make_task_tokenizer(tokenizer)
        columns = self.columns()
        if isinstance(columns.tag, str) and not isinstance(columns.word, str) and not tfds.is_tfds(data):
            raise UserError(
                f"--tag-column {columns.tag} is a name and --word-column {columns.word} a number; name both, "
                "so that `predict`, which reads no tags, knows that the first line holds names"
            )
        words = dataclasses.replace(columns, tag=None)
        train_file = require_split(data, "train", _SUFFIXES, _CONLL["train"])
        train = read_columns(train_file, columns)
        files = {"dev": require_split(data, "dev", _SUFFIXES, _CONLL["dev"])}
        dev = read_columns(files["dev"], columns)
        trained, tags = list_tags(train, self.scheme), list_tags([*train, *dev], self.scheme)
        if len(trained) == 1:
            raise UserError(f"{data}: no word of the training file has a tag but {trained[0]}")
        if unseen := [tag for tag in tags if tag not in trained]:
            print(f"note: tags of dev that no word of the training file has: {listed(unseen)}")
        splits = {"dev": self.rows(dev, plain, tags)}
        if test := find_split(data, "test", _SUFFIXES, _CONLL["test"]):
            is_tagged = has_tags(test, columns, train_file)
            sentences = read_columns(test, columns if is_tagged else words)
            files["test"] = test
            splits["test"] = self.rows(sentences, plain, tags if is_tagged else None)
        for file in files.values():
            check_writable(file, words)
        return TaggingData(tags, self.rows(train, plain, tags).rows, splits, files, words)

    def head(self, task: str, config: FineTuningConfig) -> Tagging:
        """A score of every tag for each token."""
        return Tagging(config, _WORD_METRICS if self.scheme == "none" else (*_ENTITY_METRICS, ACCURACY))

    def predict_file(self, job: Prediction) -> int:
        """Predicts a column file, with tags or without, and writes it with one more column."""
        columns = dataclasses.replace(self.columns(), tag=None, encoding=job.encoding)
        count = 0

        def tagged() -> Iterator[tuple[Sentence, list[str]]]:
            nonlocal count
            for part in self.parts(check_whole(lambda: iterate_columns(job.input, columns))):
                yield from zip(part, self._predict(part, job.model), strict=True)
                count += len(part)

        write_columns(job.input, job.output, columns, tagged())
        return count

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[list[str]]:
        """The tags of sentences, which are lists of words; with context document, they are one document."""
        document = 0 if self.context == "document" else None
        for index, words in enumerate(examples):
            is_list = isinstance(words, list | tuple) and len(words) > 0
            if not is_list or not all(isinstance(word, str) for word in words):
                raise UserError(f"{example_place(index)}: {words!r:.40} is no list of words")
            check_unicode(example_place(index), "a word", "".join(words))
        sentences = [Sentence(tuple(words), (), document) for words in examples]
        return [tags_in_scheme(tags, self.scheme) for tags in self._predict(sentences, model)]

    def _predict(self, sentences: Sequence[Sentence], model: AppliedModel) -> list[list[str]]:
        return tag(self.rows(sentences, model.plain_tokenizer, None), model.record.labels, model.apply)

    def parts(self, sentences: Iterator[Sentence]) -> Iterator[list[Sentence]]:
        """Parts of a file; with context document, no document is split between two parts."""
        part: list[Sentence] = []
        for sentence in sentences:
            is_same = bool(part) and sentence.document is not None and sentence.document == part[-1].document
            if len(part) >= _SENTENCES_AT_ONCE and not (is_same and self.context == "document"):
                yield part
                part = []
            part.append(sentence)
        yield part

    def columns(self) -> Columns:
        """The layout of the files."""
        return Columns(_column(self.word_column), _column(self.tag_column), self.scheme, self.encoding)

    def rows(
        self, sentences: Sequence[Sentence], tokenizer: TaskTokenizer, tags: Sequence[str] | None
    ) -> TaggingRows:
        """The rows of sentences, with targets if `tags` is given."""
        return make_tagging_rows(sentences, tokenizer, tags, self.max_seq_length, self.context)


class TaggingData(TaskData):
    """Tagged sentences."""

    def __init__(
        self,
        labels: tuple[str, ...],
        train: Rows,
        splits: Mapping[str, TaggingRows],
        files: Mapping[str, Path | TfdsSplit],
        columns: Columns,
    ) -> None:
        """Args: the tags; training rows; the other splits and their files; the layout of these files."""
        self.labels = labels
        self.train = train
        self.evaluated = {name: split.rows for name, split in splits.items()}
        self.dev_fingerprint = splits["dev"].rows.fingerprint()
        if test := splits.get("test"):  # with its words, beside which its predictions are written
            self.test_fingerprint = test.rows.fingerprint([sentence.words for sentence in test.sentences])
        self._splits = splits
        self._files = files
        self._columns = columns
        self._has_entities = columns.scheme != "none"
        self.metrics = _ENTITY_METRICS if self._has_entities else _WORD_METRICS

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Precision, recall and F1 of entities on dev, or accuracy and macro F1 of words, in percent."""
        return self._score({"dev": tag(self._splits["dev"], self.labels, apply)})

    def finish(self, apply: Apply, directory: Path) -> Outcome:
        """Writes the files with one more column, and `report.json` with dev's scores by type or tag."""
        tags = {name: tag(split, self.labels, apply) for name, split in self._splits.items()}
        for name, found in tags.items():
            tagged = zip(self._splits[name].sentences, found, strict=True)
            write_columns(self._files[name], directory / f"predictions-{name}.txt", self._columns, tagged)
        report = report_entities if self._has_entities else report_words
        write_json(directory / REPORT_FILE, report(self._gold("dev"), tags["dev"]))
        words = {word for sentence in tags["dev"] for word in sentence}
        degenerate = f"every word is tagged {words.pop()}" if len(words) == 1 else None
        return Outcome(self._score(tags), degenerate, items=self._items(tags["dev"]))

    def _items(self, tags: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
        """The `Outcome.items` of sentences with predicted tags."""
        if self._has_entities:
            counts = count_entities(self._gold("dev"), tags) * _PERCENT
            return {"f1": counts, "precision": counts[:, [0, 1]], "recall": counts[:, [0, 2]]}
        by_tag = count_words(self._gold("dev"), tags, self.labels) * _PERCENT
        return {"accuracy": by_tag[..., [0, 2]].sum(1), "macro_f1": by_tag}

    def _score(self, tags: Mapping[str, list[list[str]]]) -> dict[str, float]:
        """The scores on dev, and on test if it has tags; entity tags that are all O do not count as tags."""
        score, none = (score_entities, {"O"}) if self._has_entities else (score_words, set())
        return join_splits(
            {
                name: score(self._gold(name), found)
                for name, found in tags.items()
                if name == "dev" or {tag for sentence in self._gold(name) for tag in sentence} - none
            }
        )

    def _gold(self, name: str) -> list[tuple[str, ...]]:
        return [sentence.tags for sentence in self._splits[name].sentences]


def tag(split: TaggingRows, labels: Sequence[str], apply: Apply) -> list[list[str]]:
    """The model's tag of every word of every sentence."""
    ids = ((rows, outputs.argmax(-1)) for rows, outputs in apply(split.rows))
    return collect_tags(split, ids, labels)


def _column(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text
