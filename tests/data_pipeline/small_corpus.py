"""Small corpora for tests, in the format that `prepare` writes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_pipeline.corpus.documents import FORMAT_VERSION, MANIFEST_FILE, Corpus, checksum, open_corpus
from data_pipeline.corpus.shards import make_shard, write_shard
from data_pipeline.corpus.tokenizer import Tokenizer, WordPiece
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, TOKENIZER_DIRECTORY

Document = Sequence[Sequence[int]]

VOCABULARY = (
    *SPECIAL_TOKENS,
    *(f"word{i}" for i in range(400)),
    *(f"##piece{i}" for i in range(200)),
)


def make_tokenizer() -> Tokenizer:
    """605 ids: five special ones, 400 words, 200 continuing pieces."""
    return WordPiece(VOCABULARY, "uncased")


def random_documents(count: int, seed: int = 0) -> list[Document]:
    """Documents of 1 to 24 sentences of 1 to 29 random ids, none of them special."""
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(5, len(VOCABULARY), rng.integers(1, 30)).tolist() for _ in range(rng.integers(1, 25))]
        for _ in range(count)
    ]


def write_corpus(
    directory: Path,
    train: Sequence[Sequence[Document]],
    heldout: Sequence[Sequence[Document]] = (),
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Writes a corpus from the shards of each split; a shard is a list of documents."""
    tokenizer = tokenizer or make_tokenizer()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(directory / TOKENIZER_DIRECTORY)
    manifest = {
        "format_version": FORMAT_VERSION,
        "tokenizer": {"sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size},
        "splits": {
            "train": _write_split(directory, "train", tokenizer, train),
            "heldout": _write_split(directory, "heldout", tokenizer, heldout),
        },
    }
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest), encoding="utf-8")
    return directory


def _write_split(
    directory: Path, split: str, tokenizer: Tokenizer, shards: Sequence[Sequence[Document]]
) -> dict[str, object]:
    entries = []
    for number, documents in enumerate(shards):
        path = directory / f"{split}-{number:05d}.arrow"
        write_shard(path, make_shard(documents, np.dtype(tokenizer.id_dtype)))
        entries.append({"file": path.name, "bytes": path.stat().st_size, "sha256": checksum(path)})
    return {"documents": sum(map(len, shards)), "shards": entries}


def make_corpus(directory: Path, documents: int = 40) -> Corpus:
    """The opened train split of a corpus of random documents in three shards."""
    made = random_documents(documents)
    third = documents // 3
    write_corpus(
        directory, [made[:third], made[third : 2 * third], made[2 * third :]], [random_documents(12, 1)]
    )
    return open_corpus(directory, "train")


def count_bounds(draws: int, probability: float) -> tuple[float, float]:
    """Bounds of a binomial count at five standard deviations: a correct test fails once in a million runs."""
    spread = 5 * (draws * probability * (1 - probability)) ** 0.5
    return draws * probability - spread, draws * probability + spread
