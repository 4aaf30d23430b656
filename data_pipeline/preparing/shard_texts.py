"""From documents to shards of bounded text: pure functions that any runner can call.

Documents fill the shards of a split one after the other, in reading order. So the shards do not depend on
the number of processes, nor on which shards were made before a restart.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipeline.corpus.shards import make_shard, write_shard
from data_pipeline.corpus.tokenizer import Tokenizer
from data_pipeline.corpus.vocabulary_file import TOKENIZER_DIRECTORY
from data_pipeline.names import Split
from data_pipeline.preparing.inputs import Inputs
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.sentences import split_sentences
from data_pipeline.preparing.summary import Totals, summarize_shard

SHARD_TEXT_BYTES = 2 << 20
"""Bytes of text at which a shard is full."""

_SENTENCES_AT_ONCE = 256  # bounds memory: the tokenizer's results are large


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """Everything that decides the shards of a corpus: what a runner makes them from, and where."""

    directory: Path
    """The directory that the shards are written to."""
    inputs: Inputs
    heldout_threshold: int
    """Documents with `Digest.split` below it are held out; the result of `find_heldout_threshold`."""
    language: str
    """Code of the language whose rules split text into sentences."""
    max_tokens_per_character: float | None = None
    """Documents with more tokens for each of their characters are left out; None: none."""

    @property
    def tokenizer_directory(self) -> Path:
        """The directory in `directory` that holds the tokenizer before any shard is made."""
        return self.directory / TOKENIZER_DIRECTORY

    def absolute(self) -> "ShardJob":
        """The same job with absolute paths, for processes with another working directory."""
        return dataclasses.replace(self, directory=self.directory.absolute(), inputs=self.inputs.absolute())


class Digest(NamedTuple):
    """Hashes and size of a document's text, which decide where it goes; duplicates go the same way."""

    split: int
    """64-bit hash; the document is held out if it is below a threshold."""
    sample: int
    """64-bit hash, independent of `split`; the vocabulary is learned from documents where it is low."""
    size: int
    """Bytes of text in UTF-8."""


class Level(NamedTuple):
    """How far the shards of a split are filled."""

    number: int = 0
    """Number of the shard that the next document goes into."""
    size: int = 0
    """Bytes of text already in that shard."""

    def after(self, size: int) -> "Level":
        """The level after another document of `size` bytes; after a full shard comes an empty one."""
        filled = self.size + size
        return Level(self.number, filled) if filled < SHARD_TEXT_BYTES else Level(self.number + 1, 0)


class ShardText(NamedTuple):
    """The documents of one shard, or of the piece of it that one partition of the inputs holds."""

    split: Split
    number: int
    documents: list[Document]
    size: int
    """Bytes of text."""

    @property
    def file(self) -> str:
        """Name of the shard's file."""
        return f"{self.split}-{self.number:05d}.arrow"


def as_text(document: Document) -> str:
    """The document with one sentence or paragraph per line."""
    return document if isinstance(document, str) else "\n".join(document)


def digest(document: Document) -> Digest:
    """Hashes and measures a document, as the text that `as_text` gives."""
    text = as_text(document).encode()
    hashed = hashlib.blake2b(text, digest_size=16).digest()
    return Digest(int.from_bytes(hashed[:8]), int.from_bytes(hashed[8:]), len(text))


def find_heldout_threshold(documents: Iterable[Document], fraction: float) -> int:
    """Returns the threshold of `Digest.split` below which documents are held out, about `fraction` of them.

    At least two are held out, or at least one if there are fewer than four different documents; none if
    `fraction` is 0. Next sentence prediction draws a random B from another document, so it needs two
    documents for evaluation and two for training.

    Reads only until two documents are below `fraction`.
    """
    if fraction == 0:
        return 0
    threshold = int(fraction * (1 << 64))
    lowest: list[int] = []
    for document in documents:
        lowest = sorted({*lowest, digest(document).split})[:4]
        if len(lowest) > 1 and lowest[1] < threshold:
            return threshold
    least = lowest[1] if len(lowest) == 4 else lowest[0]
    return max(threshold, least + 1)


def empty_levels() -> dict[Split, Level]:
    """Returns the levels at which a corpus begins: the first shard of each split, empty."""
    return {"train": Level(), "heldout": Level()}


def gather_shard_texts(
    documents: Iterable[Document], heldout_threshold: int, levels: dict[Split, Level] | None = None
) -> Iterator[ShardText]:
    """Yields the texts of shards as they fill up, and at the end the unfinished ones of both splits.

    `levels` says where the first document goes if it is not the first of the corpus. The first text of each
    split is then the rest of a shard that another partition began. `levels` is updated with every document.
    """
    levels = empty_levels() if levels is None else levels
    gathered: dict[Split, list[Document]] = {"train": [], "heldout": []}
    sizes: dict[Split, int] = {"train": 0, "heldout": 0}

    def take(split: Split, number: int) -> ShardText:
        full = ShardText(split, number, gathered[split], sizes[split])
        gathered[split], sizes[split] = [], 0
        return full

    for document in documents:
        found = digest(document)
        split: Split = "heldout" if found.split < heldout_threshold else "train"
        gathered[split].append(document)
        sizes[split] += found.size
        before, levels[split] = levels[split], levels[split].after(found.size)
        if levels[split].number > before.number:
            yield take(split, before.number)
    yield from (take(split, levels[split].number) for split in gathered if gathered[split])


def tokenize_document(document: Document, tokenizer: Tokenizer, language: str) -> list[np.ndarray]:
    """The ids of each sentence, arrays of the tokenizer's `id_dtype`; sentences without ids are left out."""
    sentences = split_sentences(document, language)
    batches = (
        tokenizer.encode_batch(sentences[start : start + _SENTENCES_AT_ONCE])
        for start in range(0, len(sentences), _SENTENCES_AT_ONCE)
    )
    return [np.array(ids, tokenizer.id_dtype) for batch in batches for ids in batch if ids]


def finish_shard(job: ShardJob, text: ShardText, tokenizer: Tokenizer, is_made: bool) -> Totals:
    """Tokenises the documents of `text` into its shard, unless that is made already, and summarises it.

    Documents above `job.max_tokens_per_character` are left out, as in Geiping and Goldstein 2022 ("Cramming",
    arXiv 2212.14034), section 4.4: text that compresses badly is seldom prose.
    """
    path = job.directory / text.file
    if not is_made:
        tokenized = [tokenize_document(document, tokenizer, job.language) for document in text.documents]
        kept = tokenized
        if job.max_tokens_per_character is not None:
            kept = [
                sentences
                for document, sentences in zip(text.documents, tokenized, strict=True)
                if sum(map(len, sentences)) <= job.max_tokens_per_character * len(as_text(document))
            ]
        shard = make_shard(kept, tokenizer.id_dtype)
        write_shard(path, dataclasses.replace(shard, filtered=len(tokenized) - len(kept)))
    return summarize_shard(path, text.split, text.size, tokenizer.unk_id)
