"""Measures `bert-jax prepare --duplicates near`: how fast it is, and which copies it finds.

    python benchmarks/duplicates.py TEXT_DIRECTORY > duplicates.json

The first documents of the directory are read, with a copy of each after them: some in capitals and with other
white space, the others with some words replaced by others of the document. The similarity of a copy is
computed from its sets of 5-grams. Printed are how many copies of each similarity were found, how many
documents were left out though no kept one is as similar as asked for, and the speed.
"""

import collections
import dataclasses
import itertools
import json
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Annotated

import tyro

from data_pipeline.names import Format
from data_pipeline.preparing.duplicates import find_duplicates
from data_pipeline.preparing.inputs import Source, find_inputs
from data_pipeline.preparing.shard_texts import as_text

_REPLACED = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05)  # fractions of the words of a copy


@dataclasses.dataclass(frozen=True)
class Flags:
    directory: Annotated[Path, tyro.conf.Positional]
    """Directory of text."""
    format: Format = "auto"
    """As in `bert-jax prepare --format`."""
    documents: int = 2000
    """How many documents to copy, of at least 50 words."""
    similarity: float = 0.8
    """As in `bert-jax prepare --similarity`."""
    workers: int = 2


def main() -> None:
    flags = tyro.cli(Flags)
    source = find_inputs(Source((str(flags.directory),), flags.format))
    long = (text for text in map(as_text, source.documents()) if len(text.split()) >= 50)
    originals = list(itertools.islice(long, flags.documents))
    draw = random.Random(1)
    replaced = [fraction for fraction, _ in zip(itertools.cycle(_REPLACED), originals, strict=False)]
    copies = [_copy(text, fraction, draw) for text, fraction in zip(originals, replaced, strict=True)]
    texts = [*originals, *copies]
    begun = time.perf_counter()
    found = _find(texts, flags)
    seconds = time.perf_counter() - begun
    sets = list(map(_shingles, texts))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    result = {
        "documents": len(texts),
        "megabytes": megabytes,
        "seconds": seconds,
        "mb_per_second": megabytes / seconds,
        "copies_by_similarity": _by_similarity(sets, found),
        "left_out_originals": sum(number < len(originals) for number in found),
        "left_out_below_similarity": _below(sets, found, flags.similarity),
        "left_out_below_similarity_less_0.1": _below(sets, found, flags.similarity - 0.1),
    }
    print(json.dumps(result, indent=2))


def _copy(text: str, fraction: float, draw: random.Random) -> str:
    words = text.split()
    if not fraction:
        return "  ".join(words).upper()
    return " ".join(draw.choice(words) if draw.random() < fraction else word for word in words)


def _find(texts: list[str], flags: Flags) -> set[int]:
    """The numbers of the documents that are left out."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "texts.jsonl")
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        inputs = find_inputs(Source((str(file),)))
        duplicates = find_duplicates(
            inputs, "near", flags.similarity, Path(name), flags.workers, lambda name, done, total: None
        )
    return set(duplicates.found["document"].tolist())


def _shingles(text: str) -> set[int]:
    words = re.findall(r"\w+", text.casefold())
    return {hash(tuple(words[start : start + 5])) for start in range(max(1, len(words) - 4))}


def _jaccard(one: set[int], other: set[int]) -> float:
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def _by_similarity(sets: list[set[int]], found: set[int]) -> dict[str, dict[str, int]]:
    """Copies made and found, by the similarity of a copy to its original, in steps of 0.05."""
    made, hit = collections.Counter[float](), collections.Counter[float]()
    half = len(sets) // 2
    for number in range(half):
        similarity = _jaccard(sets[number], sets[half + number])
        step = int(similarity * 20 + 1e-9) / 20
        made[step] += 1
        hit[step] += half + number in found
    return {f"{step:.2f}": {"made": made[step], "found": hit[step]} for step in sorted(made)}


def _below(sets: list[set[int]], found: set[int], similarity: float) -> int:
    """How many documents were left out though no earlier one that stays is so similar."""
    kept = [number for number in range(len(sets)) if number not in found]
    return sum(
        not any(_jaccard(sets[number], sets[other]) >= similarity for other in kept if other < number)
        for number in found
    )


if __name__ == "__main__":
    main()
