"""Statistics of a finished corpus, and warnings about what in it spoils BERT runs.

Everything is computed from finished shards, shard by shard in bounded memory. So the result does not depend
on which process wrote them or how often preparation was restarted.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.corpus.documents import checksum
from data_pipeline.corpus.shards import read_shard
from data_pipeline.names import Split
from data_pipeline.preparing.hashing import mix

_SKETCH_SIZE = 1 << 17
_RUNS_AT_ONCE = 2048  # bounds memory: hashing needs several times that of its input

# Fractions above which a warning asks the user to look at the text.
_MANY_ONE_SENTENCE_DOCUMENTS = 0.10
_MANY_DUPLICATE_SENTENCES = 0.10
_MANY_DUPLICATE_DOCUMENTS = 0.01
_MANY_UNKNOWN_TOKENS = 0.01
_MANY_TOKENS_IN_LONG_SENTENCES = 0.05

# In tokens: the most that fit into a row of the paper's longest phase, 512.
_LONGEST_SENTENCE = 510


@dataclasses.dataclass(frozen=True, eq=False)
class ShardSummary:
    """One shard's row of the manifest, and the counts and hashes for the statistics."""

    file: str
    documents: int
    sentences: int
    tokens: int
    bytes: int
    sha256: str
    filtered_documents: int
    one_sentence_documents: int
    unknown_tokens: int
    tokens_in_long_sentences: int
    sentence_hashes: np.ndarray
    """uint64 [sentences]"""
    document_hashes: np.ndarray
    """uint64 [documents]"""

    def row(self) -> dict[str, str | int]:
        """The shard's row of the manifest."""
        names = ("file", "documents", "sentences", "tokens", "bytes", "sha256")
        return {name: getattr(self, name) for name in names}


def summarize_shard(path: Path, unk_id: int) -> ShardSummary:
    """Counts and hashes the contents of a finished shard."""
    shard = read_shard(path)
    sentence_hashes = _hash_runs(shard.tokens, shard.sentence_starts)
    lengths = np.diff(shard.sentence_starts)
    return ShardSummary(
        file=path.name,
        documents=len(shard.document_starts) - 1,
        sentences=len(shard.sentence_starts) - 1,
        tokens=len(shard.tokens),
        bytes=path.stat().st_size,
        sha256=checksum(path),
        filtered_documents=shard.filtered,
        one_sentence_documents=int((np.diff(shard.document_starts) == 1).sum()),
        unknown_tokens=int((shard.tokens == unk_id).sum()),
        tokens_in_long_sentences=int(lengths[lengths > _LONGEST_SENTENCE].sum()),
        sentence_hashes=sentence_hashes,
        document_hashes=_hash_runs(sentence_hashes, shard.document_starts),
    )


class DuplicateSketch:
    """Estimates the fraction of values that repeat an earlier one.

    The lowest `size` different hashes tell how many different values there are (Bar-Yossef et al.
    2002), however often any of them is repeated. The number is exact while it is below `size`, and
    has a relative error of 1/sqrt(size), 0.3%, from then on.
    """

    def __init__(self, size: int = _SKETCH_SIZE) -> None:
        self._size = size
        self._lowest = np.empty(0, np.uint64)
        self._total = 0

    def add(self, hashes: np.ndarray) -> None:
        """Counts values by their hashes, uint64 [values]."""
        self._total += len(hashes)
        if len(self._lowest) == self._size:
            hashes = hashes[hashes < self._lowest[-1]]
        self._lowest = np.union1d(self._lowest, hashes)[: self._size]

    def merge(self, other: "DuplicateSketch") -> None:
        """Adds the counts of another sketch of the same size."""
        self._total += other._total
        self._lowest = np.union1d(self._lowest, other._lowest)[: self._size]

    def fraction(self) -> float:
        """Repetitions as a fraction of all values: 0 if all differ."""
        different = float(len(self._lowest))
        if different == self._size:
            different = (self._size - 1) / (float(self._lowest[-1]) / 2**64)
        return max(0.0, 1 - different / self._total) if self._total else 0.0


@dataclasses.dataclass
class Totals:
    """Sums over the shards of all splits, which may be added in any order."""

    text_bytes: int = 0
    filtered_documents: int = 0
    one_sentence_documents: int = 0
    unknown_tokens: int = 0
    tokens_in_long_sentences: int = 0
    rows: dict[Split, list[dict[str, Any]]] = dataclasses.field(
        default_factory=lambda: {"train": [], "heldout": []}
    )
    sentence_sketch: DuplicateSketch = dataclasses.field(default_factory=DuplicateSketch)
    document_sketch: DuplicateSketch = dataclasses.field(default_factory=DuplicateSketch)

    def add(self, split: Split, shard: ShardSummary, text_bytes: int) -> None:
        """Adds a shard of `split`, made from `text_bytes` bytes of text."""
        self.text_bytes += text_bytes
        self.filtered_documents += shard.filtered_documents
        self.one_sentence_documents += shard.one_sentence_documents
        self.unknown_tokens += shard.unknown_tokens
        self.tokens_in_long_sentences += shard.tokens_in_long_sentences
        self.rows[split].append(shard.row())
        self.sentence_sketch.add(shard.sentence_hashes)
        self.document_sketch.add(shard.document_hashes)

    def merge(self, other: "Totals") -> None:
        """Adds the sums of another `Totals`."""
        self.text_bytes += other.text_bytes
        self.filtered_documents += other.filtered_documents
        self.one_sentence_documents += other.one_sentence_documents
        self.unknown_tokens += other.unknown_tokens
        self.tokens_in_long_sentences += other.tokens_in_long_sentences
        for split, rows in other.rows.items():
            self.rows[split] += rows
        self.sentence_sketch.merge(other.sentence_sketch)
        self.document_sketch.merge(other.document_sketch)

    def splits(self) -> dict[Split, dict[str, Any]]:
        """Each split's entry in the manifest, with its shards in order."""
        return {split: _add_up(rows) for split, rows in self.rows.items()}

    def statistics(self) -> dict[str, float]:
        """The fractions that `warnings_about` judges, from 0 to 1."""
        entries = self.splits().values()
        documents, tokens = (sum(entry[name] for entry in entries) for name in ("documents", "tokens"))
        return {
            "one_sentence_documents": self.one_sentence_documents / max(documents, 1),
            "duplicate_sentences": self.sentence_sketch.fraction(),
            "duplicate_documents": self.document_sketch.fraction(),
            "unknown_tokens": self.unknown_tokens / max(tokens, 1),
            "tokens_in_long_sentences": self.tokens_in_long_sentences / max(tokens, 1),
        }


def _add_up(rows: list[dict[str, Any]]) -> dict[str, Any]:
    totals = {name: sum(row[name] for row in rows) for name in ("documents", "sentences", "tokens")}
    # The numbers in names have at least five digits, and more in a large corpus: shorter names come first.
    return {**totals, "shards": sorted(rows, key=lambda row: (len(row["file"]), row["file"]))}


def warnings_about(statistics: dict[str, float]) -> list[str]:
    """Returns one line for each property of a corpus that is known to spoil BERT runs."""
    judgements = (
        (
            "one_sentence_documents",
            _MANY_ONE_SENTENCE_DOCUMENTS,
            "of the documents have one sentence: next sentence prediction can only pair them at random. "
            "Is a blank line or a line end taken for the end of a document? If not, train with "
            "--objective mlm --data.pairing contiguous.",
        ),
        (
            "duplicate_sentences",
            _MANY_DUPLICATE_SENTENCES,
            "of the sentences repeat another one: the model learns them by heart. "
            "Menus, licences and headings are the usual cause.",
        ),
        (
            "duplicate_documents",
            _MANY_DUPLICATE_DOCUMENTS,
            "of the documents repeat another one word for word; --duplicates exact leaves them out.",
        ),
        (
            "unknown_tokens",
            _MANY_UNKNOWN_TOKENS,
            "of the tokens are [UNK]: the vocabulary does not fit this text. Check --casing.",
        ),
        (
            "tokens_in_long_sentences",
            _MANY_TOKENS_IN_LONG_SENTENCES,
            f"of the tokens are in sentences of more than {_LONGEST_SENTENCE} tokens: training sees only "
            "a row's length of each, near its middle. Does the text lack full stops, or is --language wrong?",
        ),
    )
    return [f"{statistics[name]:.1%} {text}" for name, most, text in judgements if statistics[name] > most]


def _hash_runs(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """uint64 [runs]: a hash of each run of values [starts[i], starts[i + 1]); no run is empty."""
    blocks = [starts[first : first + _RUNS_AT_ONCE + 1] for first in range(0, len(starts) - 1, _RUNS_AT_ONCE)]
    hashes = [_hash_block(values[block[0] : block[-1]], block - block[0]) for block in blocks]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def _hash_block(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    lengths = np.diff(starts)
    positions = np.arange(len(values)) - np.repeat(starts[:-1], lengths)
    mixed = mix(values.astype(np.uint64) + mix(positions.astype(np.uint64) + np.uint64(1)))
    return mix(np.add.reduceat(mixed, starts[:-1]) + lengths.astype(np.uint64))
