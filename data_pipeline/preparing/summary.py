"""Statistics of a finished corpus, and warnings about what in it spoils BERT runs.

Everything is computed from finished shards, shard by shard in bounded memory. So the result does not depend
on which process wrote them or how often preparation was restarted.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.corpus.documents import checksum
from data_pipeline.corpus.shards import Shard, read_shard
from data_pipeline.names import Split
from data_pipeline.preparing.hashing import mix

_SKETCH_SIZE = 1 << 17
_RUNS_AT_ONCE = 2048  # bounds memory: hashing needs several times that of its input

# In tokens: the most that fit into a row of the paper's longest phase, 512.
_LONGEST_SENTENCE = 510


class DuplicateSketch:
    """Estimates the fraction of values that repeat an earlier one.

    The lowest `_SKETCH_SIZE` different hashes tell how many different values there are (Bar-Yossef et al.
    2002), however often any of them is repeated. The number is exact while it is below that size, and
    has a relative error of 1/sqrt(size), 0.3%, from then on.
    """

    def __init__(self, hashes: np.ndarray | tuple[()] = ()) -> None:
        """Counts values by their hashes, uint64 [values]."""
        self._lowest = np.unique(np.asarray(hashes, np.uint64))[:_SKETCH_SIZE]
        self._total = len(hashes)

    def merge(self, other: "DuplicateSketch") -> None:
        """Adds the counts of another sketch."""
        self._total += other._total
        self._lowest = np.union1d(self._lowest, other._lowest)[:_SKETCH_SIZE]

    def fraction(self) -> float:
        """Repetitions as a fraction of all values: 0 if all differ."""
        different = float(len(self._lowest))
        if different == _SKETCH_SIZE:
            different = (_SKETCH_SIZE - 1) / (float(self._lowest[-1]) / 2**64)
        return max(0.0, 1 - different / self._total) if self._total else 0.0


@dataclasses.dataclass
class Totals:
    """Sums over some or all shards, which may be added in any order."""

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
        return {split: _entry(rows) for split, rows in self.rows.items()}

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


def sum_totals(parts: Iterable[Totals]) -> Totals:
    """Adds up the totals of disjoint sets of shards."""
    totals = Totals()
    for part in parts:
        totals.merge(part)
    return totals


def summarize_shard(path: Path, split: Split, text_bytes: int, unk_id: int) -> Totals:
    """The totals of one finished shard of `split`, made from `text_bytes` bytes of text."""
    shard = read_shard(path)
    sentences, documents = hash_contents(shard)
    lengths = np.diff(shard.sentence_starts)
    totals = Totals(
        text_bytes=text_bytes,
        filtered_documents=shard.filtered,
        one_sentence_documents=int((np.diff(shard.document_starts) == 1).sum()),
        unknown_tokens=int((shard.tokens == unk_id).sum()),
        tokens_in_long_sentences=int(lengths[lengths > _LONGEST_SENTENCE].sum()),
        sentence_sketch=DuplicateSketch(sentences),
        document_sketch=DuplicateSketch(documents),
    )
    row = {
        "file": path.name,
        "documents": len(documents),
        "sentences": len(sentences),
        "tokens": len(shard.tokens),
        "bytes": path.stat().st_size,
        "sha256": checksum(path),
    }
    totals.rows[split].append(row)
    return totals


def _entry(rows: list[dict[str, Any]]) -> dict[str, Any]:
    totals = {name: sum(row[name] for row in rows) for name in ("documents", "sentences", "tokens")}
    # The numbers in names have at least five digits, and more in a large corpus: shorter names come first.
    return {**totals, "shards": sorted(rows, key=lambda row: (len(row["file"]), row["file"]))}


def warnings_about(statistics: dict[str, float]) -> list[str]:
    """Returns one line for each property of a corpus that is known to spoil BERT runs."""
    judgements = (  # name, fraction above which the text should be looked at, what to say
        (
            "one_sentence_documents",
            0.10,
            "of the documents have one sentence: next sentence prediction can only pair them at random. "
            "Is a blank line or a line end taken for the end of a document? If not, train with "
            "--objective mlm --data.pairing contiguous.",
        ),
        (
            "duplicate_sentences",
            0.10,
            "of the sentences repeat another one: the model learns them by heart. "
            "Menus, licences and headings are the usual cause.",
        ),
        (
            "duplicate_documents",
            0.01,
            "of the documents repeat another one word for word; --duplicates exact leaves them out.",
        ),
        (
            "unknown_tokens",
            0.01,
            "of the tokens are [UNK]: the vocabulary does not fit this text. Check --casing.",
        ),
        (
            "tokens_in_long_sentences",
            0.05,
            f"of the tokens are in sentences of more than {_LONGEST_SENTENCE} tokens: training sees only "
            "a row's length of each, near its middle. Does the text lack full stops, or line ends with "
            "--format sentences, or is --language wrong?",
        ),
    )
    return [f"{statistics[name]:.1%} {text}" for name, most, text in judgements if statistics[name] > most]


def hash_contents(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """A hash of each sentence, uint64 [sentences], and of each document, uint64 [documents]."""
    sentences = _hash_runs(shard.tokens, shard.sentence_starts)
    return sentences, _hash_runs(sentences, shard.document_starts)


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
