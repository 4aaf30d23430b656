"""A small text to prepare, of a few words."""

from pathlib import Path

import numpy as np

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
