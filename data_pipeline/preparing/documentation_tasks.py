"""Tasks that the installed documentation carries in itself, in tables for `bert-jax finetune classify`.

`package`: which package a few sentences are from. `neighbours`: whether the second of two sentences follows
the first in its document; the others are from another document. A document is in `train` or in `dev`, never
in both. The corpus that is made of the same documentation holds out other documents.
"""

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError
from data_pipeline.preparing.documentation import documents_of_packages

SPLITS = {"train": 4000, "dev": 1000}
"""The splits of each task, and how many examples each has at most."""
_PACKAGES = 10
_SENTENCES_IN_A_TEXT = 2
_DEV_OF_DOCUMENTS = 5  # one document in so many

Document: TypeAlias = tuple[str, Sequence[str]]
"""The name of a package, and sentences."""


def write_tasks(directory: Path) -> None:
    """Makes a directory with a directory for each task, `package` and `neighbours`, or none at all.

    The same installed packages give the same files.

    Raises:
      UserError: there is too little documentation.
    """
    documents = documents_of_packages()
    with atomically(directory) as partial:
        for split, limit in SPLITS.items():
            chosen = [document for document in documents if _split(document) == split]
            _write(
                partial / "package" / f"{split}.tsv", ("text", "label"), _packages(documents, chosen, limit)
            )
            _write(
                partial / "neighbours" / f"{split}.tsv",
                ("text", "text_b", "label"),
                _neighbours(chosen, limit),
            )


def _split(document: Document) -> str:
    digest = hashlib.blake2b(document[1][0].encode(), digest_size=8).digest()
    return "dev" if int.from_bytes(digest, "little") % _DEV_OF_DOCUMENTS == 0 else "train"


def _packages(documents: Sequence[Document], chosen: Sequence[Document], limit: int) -> list[tuple[str, ...]]:
    """Texts of the packages with the most sentences, as many of each."""
    sizes = Counter[str]()
    for package, sentences in documents:
        sizes[package] += len(sentences)
    largest = sorted(sorted(sizes), key=lambda package: -sizes[package])[:_PACKAGES]
    texts: dict[str, list[str]] = {package: [] for package in largest}
    for package, sentences in chosen:
        if package in texts:
            starts = range(0, len(sentences) - _SENTENCES_IN_A_TEXT + 1, _SENTENCES_IN_A_TEXT)
            texts[package] += [" ".join(sentences[start : start + _SENTENCES_IN_A_TEXT]) for start in starts]
    count = min(limit // _PACKAGES, *(len(of_package) for of_package in texts.values()))
    draw = random.Random(0)
    return _shuffled((text, package) for package in largest for text in draw.sample(texts[package], count))


def _neighbours(chosen: Sequence[Document], limit: int) -> list[tuple[str, ...]]:
    """Pairs of sentences, half of them neighbours."""
    pairs = [
        (number, first, second)
        for number, (_, sentences) in enumerate(chosen)
        for first, second in itertools.pairwise(sentences)
        if len(chosen) > 1  # without another one no sentences could be told to be no neighbours
    ]
    draw = random.Random(0)
    drawn = draw.sample(pairs, min(limit, len(pairs)) // 2 * 2)
    rows = []
    for place, (number, first, second) in enumerate(drawn):
        if place % 2:
            other = (number + draw.randrange(1, len(chosen))) % len(chosen)
            second = draw.choice(chosen[other][1])
        rows.append((first, second, "no" if place % 2 else "yes"))
    return _shuffled(rows)


def _shuffled(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    shuffled = list(rows)
    random.Random(1).shuffle(shuffled)
    return shuffled


def _write(path: Path, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    if len(rows) < 2:
        raise UserError("too little documentation is installed to make tasks of; pass --corpus and --tasks")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) for row in (header, *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
