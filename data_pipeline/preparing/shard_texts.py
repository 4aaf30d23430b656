"""From documents to shards of bounded text: pure functions that any runner can call.

Documents fill the shards of a split in reading order, one after the other, so the shards do not depend
on how many processes made them, nor on which of them were made before a restart.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipeline.names import Split
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.sentences import split_sentences
from data_pipeline.preparing.summary import ShardSummary, summarize_shard
from data_pipeline.shards import make_shard, write_shard
from data_pipeline.tokenizer import Tokenizer

SHARD_TEXT_BYTES = 2 << 20
"""Bytes of text from which a shard is full."""

_SENTENCES_AT_ONCE = 256  # what the tokenizer returns for them is large


class Digest(NamedTuple):
    """What is decided by a document's text alone, so that duplicates share the decision."""

    split: int
    """64 bits: held out if below a threshold."""
    sample: int
    """64 bits, independent of `split`: learned from if low."""
    size: int
    """Bytes of UTF-8."""


class Level(NamedTuple):
    """How far the shards of a split are filled."""

    number: int = 0
    """Of the shard that the next document goes into."""
    size: int = 0
    """Bytes of text in it."""

    def after(self, size: int) -> "Level":
        """With a document of `size` bytes more. A shard that is full makes way for the next one."""
        filled = self.size + size
        return Level(self.number, filled) if filled < SHARD_TEXT_BYTES else Level(self.number + 1, 0)


class ShardText(NamedTuple):
    """The documents of one shard, or of one end of it."""

    split: Split
    number: int
    documents: list[Document]
    size: int
    """Bytes of text."""

    @property
    def file(self) -> str:
        return f"{self.split}-{self.number:05d}.arrow"


def as_text(document: Document) -> str:
    """The document with a sentence or a paragraph a line."""
    return document if isinstance(document, str) else "\n".join(document)


def digest(document: Document) -> Digest:
    text = as_text(document).encode()
    hashed = hashlib.blake2b(text, digest_size=16).digest()
    return Digest(int.from_bytes(hashed[:8]), int.from_bytes(hashed[8:]), len(text))


def find_heldout_threshold(documents: Iterable[Document], fraction: float) -> int:
    """Documents whose `Digest.split` is below this are held out: about `fraction` of them, at least two.

    Next sentence prediction draws a random B from another document, so it takes two to measure it, and
    two to train. Of fewer than four different documents at least one is held out.

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
    """Of each split, where the first document of a corpus goes."""
    return {"train": Level(), "heldout": Level()}


def gather_shard_texts(
    documents: Iterable[Document], heldout_threshold: int, levels: dict[Split, Level] | None = None
) -> Iterator[ShardText]:
    """The texts of shards as they fill up; then what is left of both splits.

    `levels` is where the first document goes, if it is not the first of the corpus: the first ones are
    then the ends of shards that were begun elsewhere. It moves along, and ends where the next document goes.
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
    """The ids of each sentence: arrays of the tokenizer's `id_dtype`; sentences without any are left out."""
    sentences = split_sentences(document, language)
    batches = (
        tokenizer.encode_batch(sentences[start : start + _SENTENCES_AT_ONCE])
        for start in range(0, len(sentences), _SENTENCES_AT_ONCE)
    )
    return [np.array(ids, tokenizer.id_dtype) for batch in batches for ids in batch if ids]


def finish_shard(
    path: Path, documents: list[Document] | None, tokenizer: Tokenizer, language: str
) -> ShardSummary:
    """Tokenise `documents` into the shard `path`, or take the one that is there if they are None."""
    if documents is not None:
        tokenized = [tokenize_document(document, tokenizer, language) for document in documents]
        write_shard(path, make_shard(tokenized, tokenizer.id_dtype))
    return summarize_shard(path, tokenizer.unk_id)
