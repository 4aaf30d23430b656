"""Named entities, and any other tags of words, from column files such as CoNLL's."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.predict_records import check_whole
from bert_jax.downstream.task_data import AppliedModel, Apply, Outcome, Prediction, join_figures
from bert_jax.finetuning.config import HeadKind
from bert_jax.finetuning.grid_folder import REPORT_FILE
from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.names import Context, PartName, Scheme
from data_pipeline.tasks.parts import find_part, require_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.conll import Columns, Sentence
    from data_pipeline.tasks.encode import TaskTokenizer
    from data_pipeline.tasks.ner import TaggingRows
    from data_pipeline.tasks.rows import Rows
    from data_pipeline.tfds import TfdsSplit

# Enough for full batches of similar length, few enough to hold in memory.
_SENTENCES_AT_ONCE = 1024

_CONLL: Mapping[PartName, tuple[str, ...]] = {
    "train": ("eng.train",),
    "dev": ("testa", "eng.testa"),
    "test": ("testb", "eng.testb"),
}
_SUFFIXES = ("", ".txt", ".tsv", ".conll", ".bio", ".iob")


@dataclasses.dataclass(frozen=True)
class TaggingSettings:
    """A folder with train, dev and optionally test: one word with its tag per line, a blank line between
    sentences (.txt, .tsv, .conll, .bio or .iob; or CoNLL-2003's eng.train, eng.testa, eng.testb); or
    tfds:conll2003."""

    max_seq_length: int = 128
    """Most tokens of a sequence; longer sentences are cut into windows."""
    context: Context = "sentence"
    """document: fill the sequence up with the words around the sentence, as the paper did."""
    word_column: str = "0"
    """Number of the words' column, from 0 or backwards from -1; or its name."""
    tag_column: str = "-1"
    """Number of the tags' column, from 0 or backwards from -1; or its name, if --word-column is one too."""
    scheme: Scheme = "iob2"
    """How entities are tagged in the files and in predictions; the original
    CoNLL-2003 has iob1. none: tags are of single words, such as parts of
    speech, and are scored by accuracy."""
    encoding: str = "utf-8-sig"
    """Encoding of the files; latin-1 for CoNLL-2002."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "TaggingData":
        """Reads and encodes train, dev, and test if there is one."""
        from data_pipeline.tasks.conll import has_tags, read_columns
        from data_pipeline.tasks.encode import make_task_tokenizer
        from data_pipeline.tasks.ner import list_tags

        del task
        plain = make_task_tokenizer(tokenizer)
        columns = self.columns()
        if isinstance(columns.tag, str) and not isinstance(columns.word, str) and not tfds.is_tfds(data):
            raise UserError(
                f"--tag-column {columns.tag} is a name and --word-column {columns.word} a number; name both, "
                "so that `predict`, which reads no tags, knows that the first line holds names"
            )
        words = dataclasses.replace(columns, tag=None)
        train_file = require_part(data, "train", _SUFFIXES, _CONLL["train"])
        train = read_columns(train_file, columns)
        tags = list_tags(train, self.scheme)
        if len(tags) == 1:
            raise UserError(f"{data}: no word of the training file has a tag but {tags[0]}")
        files = {"dev": require_part(data, "dev", _SUFFIXES, _CONLL["dev"])}
        parts = {"dev": self.rows(read_columns(files["dev"], columns), plain, tags)}
        if test := find_part(data, "test", _SUFFIXES, _CONLL["test"]):
            is_tagged = has_tags(test, columns, train_file)
            sentences = read_columns(test, columns if is_tagged else words)
            files["test"] = test
            parts["test"] = self.rows(sentences, plain, tags if is_tagged else None)
        return TaggingData(tags, self.rows(train, plain, tags).rows, parts, files, words)

    def predict_file(self, job: Prediction) -> int:
        """Predicts a column file, with tags or without, and writes it with one more column."""
        from data_pipeline.tasks.conll import iterate_columns, write_columns

        columns = dataclasses.replace(self.columns(), tag=None)
        count = 0

        def tagged() -> "Iterator[tuple[Sentence, list[str]]]":
            nonlocal count
            for part in self.parts(check_whole(lambda: iterate_columns(job.input, columns))):
                yield from zip(part, self._predict(part, job.model), strict=True)
                count += len(part)

        write_columns(job.input, job.output, columns, tagged())
        return count

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[list[str]]:
        """The tags of sentences, which are lists of words; with context document, they are one document."""
        from data_pipeline.tasks.conll import Sentence, tags_in_scheme
        from data_pipeline.tasks.records import check_unicode, example_place

        document = 0 if self.context == "document" else None
        for index, words in enumerate(examples):
            is_list = isinstance(words, list | tuple) and len(words) > 0
            if not is_list or not all(isinstance(word, str) for word in words):
                raise UserError(f"{example_place(index)}: {words!r:.40} is no list of words")
            check_unicode(example_place(index), "a word", "".join(words))
        sentences = [Sentence(tuple(words), (), document) for words in examples]
        return [list(tags_in_scheme(tags, self.scheme)) for tags in self._predict(sentences, model)]

    def _predict(self, sentences: "Sequence[Sentence]", model: AppliedModel) -> list[list[str]]:
        return tag(self.rows(sentences, model.plain_tokenizer, None), model.record.labels, model.apply)

    def parts(self, sentences: "Iterator[Sentence]") -> "Iterator[list[Sentence]]":
        """Parts of a file; with context document, no document is split between two parts."""
        part: list[Sentence] = []
        for sentence in sentences:
            is_same = bool(part) and sentence.document is not None and sentence.document == part[-1].document
            if len(part) >= _SENTENCES_AT_ONCE and not (is_same and self.context == "document"):
                yield part
                part = []
            part.append(sentence)
        yield part

    def columns(self) -> "Columns":
        """The layout of the files."""
        from data_pipeline.tasks.conll import Columns

        return Columns(_column(self.word_column), _column(self.tag_column), self.scheme, self.encoding)

    def rows(
        self, sentences: "Sequence[Sentence]", tokenizer: "TaskTokenizer", tags: Sequence[str] | None
    ) -> "TaggingRows":
        """The rows of sentences, with targets if `tags` is given."""
        from data_pipeline.tasks.ner import TaggingOptions, make_tagging_rows

        return make_tagging_rows(
            sentences, tokenizer, tags, TaggingOptions(self.max_seq_length, self.context)
        )


class TaggingData:
    """The `TaskData` of tagged sentences."""

    kind: HeadKind = "tagging"

    def __init__(
        self,
        labels: tuple[str, ...],
        train: Any,
        parts: "Mapping[str, TaggingRows]",
        files: "Mapping[str, Path | TfdsSplit]",
        columns: "Columns",
    ) -> None:
        """Args: the tags; training rows; the other parts and their files; the layout of these files."""
        self.labels = labels
        self.train = train
        self._parts = parts
        self._files = files
        self._columns = columns
        self._has_entities = columns.scheme != "none"
        self.metric = "f1" if self._has_entities else "accuracy"

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The rows of dev and test."""
        return {name: part.rows for name, part in self._parts.items()}

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set and its tags."""
        return self._parts["dev"].rows.fingerprint()

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test set and its words, beside which its predictions are written."""
        if "test" not in self._parts:
            return ""
        part = self._parts["test"]
        return part.rows.fingerprint([sentence.words for sentence in part.sentences])

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """Precision, recall and F1 of entities on dev, or accuracy and macro F1 of words, in percent."""
        return self._figures({"dev": tag(self._parts["dev"], self.labels, apply)})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """Writes the files with one more column, and `report.json` with dev's scores by type or tag."""
        from data_pipeline.atomic import write_json
        from data_pipeline.tasks.conll import write_columns
        from data_pipeline.tasks.ner_metrics import report_entities
        from data_pipeline.tasks.word_metrics import report_words

        tags = {name: tag(part, self.labels, apply) for name, part in self._parts.items()}
        for name, found in tags.items():
            tagged = zip(self._parts[name].sentences, found, strict=True)
            write_columns(self._files[name], folder / f"predictions-{name}.txt", self._columns, tagged)
        report = report_entities if self._has_entities else report_words
        write_json(folder / REPORT_FILE, report(self._gold("dev"), tags["dev"]))
        words = {word for sentence in tags["dev"] for word in sentence}
        degenerate = f"every word is tagged {words.pop()}" if len(words) == 1 else None
        return Outcome(self._figures(tags), degenerate)

    def _figures(self, tags: Mapping[str, list[list[str]]]) -> dict[str, float]:
        """The scores on dev, and on test if it has tags; entity tags that are all O do not count as tags."""
        from data_pipeline.tasks.ner_metrics import score_entities
        from data_pipeline.tasks.word_metrics import score_words

        score, none = (score_entities, {"O"}) if self._has_entities else (score_words, set())
        return join_figures(
            {
                name: score(self._gold(name), found)
                for name, found in tags.items()
                if name == "dev" or {tag for sentence in self._gold(name) for tag in sentence} - none
            }
        )

    def _gold(self, name: str) -> list[tuple[str, ...]]:
        return [sentence.tags for sentence in self._parts[name].sentences]


def tag(part: "TaggingRows", labels: Sequence[str], apply: Apply) -> list[list[str]]:
    """The model's tag of every word of every sentence."""
    from data_pipeline.tasks.ner import collect_tags

    def ids() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for rows, outputs in apply(part.rows):
            yield rows, outputs.argmax(-1)

    return collect_tags(part, ids(), labels)


def _column(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text
