"""Pairs of an acceptable and an unacceptable sentence, as in BLiMP (Warstadt et al. 2020)."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError
from data_pipeline.json_text import JSON_LINES_SUFFIXES
from data_pipeline.tasks.finetuning.records import read_records


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in little."""

    good: str
    """The acceptable one."""
    bad: str
    paradigm: str
    """What the difference is: the name of the file without its suffix."""
    phenomenon: str | None
    """What several paradigms have in common; None if the file does not say."""
    line: int
    """Its place in the file, from 1."""


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """The pairs of a JSONL file, or of all those in a directory, each of which is a paradigm.

    A line is {"sentence_good", "sentence_bad"}, and maybe "linguistics_term", the phenomenon, as in BLiMP.

    Raises:
      UserError: no such file; a directory without one; not UTF-8; empty; a line that is no JSON object, or
        without the two sentences.
    """
    files, suffixes = [path], " or ".join(JSON_LINES_SUFFIXES)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in JSON_LINES_SUFFIXES)
        if not files:
            raise UserError(f"{path} has no file that ends in {suffixes}")
    elif path.suffix not in JSON_LINES_SUFFIXES:
        raise UserError(f"{path} is neither a directory nor a file that ends in {suffixes}")
    return [pair for file in files for pair in _read_file(file)]


def _read_file(file: Path) -> Iterator[MinimalPair]:
    for record in read_records(file, ("sentence_good", "sentence_bad")):
        good, bad = record.text("sentence_good"), record.text("sentence_bad")
        phenomenon = None if record.is_blank("linguistics_term") else record.text("linguistics_term")
        yield MinimalPair(good, bad, file.stem, phenomenon, record.place.line)


def fingerprint(pairs: Iterable[MinimalPair]) -> str:
    """A hash of the sentences, in their order, and of what their paradigms are called."""
    content = json.dumps([(pair.good, pair.bad, pair.paradigm) for pair in pairs])
    return hashlib.sha256(content.encode()).hexdigest()


def accuracies(pairs: Sequence[MinimalPair], scores: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """In how many pairs the good sentence scores higher than the bad one; a tie counts as wrong.

    Args:
      pairs: one or more.
      scores: of each pair's good and bad sentence.

    Returns:
      `accuracy`, the mean over paradigms; `phenomena`, the means over theirs; `paradigms`; and the numbers of
      `pairs` and `ties`.
    """
    correct: dict[str, list[bool]] = collections.defaultdict(list)
    for pair, (good, bad) in zip(pairs, scores, strict=True):
        correct[pair.paradigm].append(good > bad)
    paradigms = {name: fmean(values) for name, values in correct.items()}
    members: dict[str, set[str]] = collections.defaultdict(set)
    for pair in pairs:
        if pair.phenomenon:
            members[pair.phenomenon].add(pair.paradigm)
    return {
        "accuracy": fmean(paradigms.values()),
        "phenomena": {
            name: fmean(paradigms[member] for member in sorted(members[name])) for name in sorted(members)
        },
        "paradigms": paradigms,
        "pairs": len(pairs),
        "ties": sum(good == bad for good, bad in scores),
    }


def write_results(
    directory: Path,
    summary: Mapping[str, Any],
    pairs: Iterable[MinimalPair],
    scores: Iterable[tuple[float, float]],
) -> None:
    """Writes `summary.json` and `pairs.jsonl`, a line for each pair with its scores, into a new directory."""
    directory.mkdir()
    write_json(directory / "summary.json", summary)
    with (directory / "pairs.jsonl").open("w", encoding="utf-8") as file:
        for pair, (good, bad) in zip(pairs, scores, strict=True):
            row = {**dataclasses.asdict(pair), "score_good": good, "score_bad": bad, "correct": good > bad}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
