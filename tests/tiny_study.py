"""A study of seconds: its data, its command line, and what came of it."""

import json
import random
from pathlib import Path

from bert_jax.studies.directory import JOB_FILE
from tests.tiny_run import WORDS, write_corpus

FILE = Path(__file__).parent / "bert_jax" / "studies" / "small_study.py"


def write_data(directory: Path) -> list[str]:
    """Writes a corpus and a task of its words; returns the flags that name them."""
    corpus = write_corpus(directory / "corpus")
    draw = random.Random(0)
    for split, count in (("train", 48), ("dev", 24)):
        file = directory / "tasks" / "topic" / f"{split}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [" ".join(draw.choices(WORDS, k=6)) for _ in range(count)]
        lines = [f"{text}\t{'cat' if 'cat' in text else 'other'}" for text in texts]
        file.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return ["--corpus", str(corpus), "--tasks", str(directory / "tasks"), "--file", str(FILE)]


def study(data: list[str], output: Path, *more: str) -> list[str]:
    """The arguments of `bert-jax`; `data` is what `write_data` returns."""
    return ["study", "tiny", *data, "--output", str(output), *more]


def outcomes(output: Path) -> dict[str, object]:
    """What came of every job, without times."""
    found = {}
    for path in sorted(output.rglob(JOB_FILE)):
        ended = json.loads(path.read_text())
        del ended["seconds"]
        found[str(path.parent.relative_to(output))] = ended
    return found
