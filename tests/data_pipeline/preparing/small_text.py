"""A small text of a few words to prepare, and the shards that were made of it."""

from pathlib import Path

import numpy as np

from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "under",
    "mat",
    "hill",
    "and",
    "then",
    "it",
    "was",
    "old",
]


def write_text(path: Path, documents: int = 40) -> Path:
    """Documents of one to five sentences, in google-research/bert's format."""
    draw = np.random.default_rng(3)
    lines = []
    for _ in range(documents):
        for _ in range(draw.integers(1, 6)):
            lines.append(" ".join(draw.choice(WORDS, draw.integers(2, 12))))
        lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_vocabulary(path: Path) -> Path:
    """A vocabulary of the special tokens and `WORDS`."""
    path.write_text("\n".join([*SPECIAL_TOKENS, *WORDS]) + "\n")
    return path


def shards(directory: Path) -> dict[str, bytes]:
    """The content of each shard in a directory, by the name of its file."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.arrow"))}
