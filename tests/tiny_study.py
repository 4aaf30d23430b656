"""A study of seconds: its data, its command line, and what came of it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bert_jax.studies.directory import JOB_FILE
from tests.tiny_run import WORDS, command, environment, write_corpus

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


def run_killed(kills: int, start: Callable[[int, Path], subprocess.Popen[bytes]], log: Path) -> str:
    """Runs three workers to their end, of which one is killed and started again several times.

    Args:
      kills: how many times; fewer than there are jobs.
      start: starts a worker, given its number and the file of what all print.
      log: that file.

    Returns:
      What they printed.
    """
    draw = random.Random(7)
    log.touch()
    workers = [start(number, log) for number in range(3)]
    killed = 0
    for kill in range(kills):
        while log.read_text().count(": begun") <= kill:  # so that the kills are spread over the jobs
            assert any(worker.poll() is None for worker in workers), log.read_text()
            time.sleep(0.05)
        time.sleep(draw.uniform(0, 3))
        victim = draw.randrange(3)
        with contextlib.suppress(ProcessLookupError):  # it may have ended: then it is started again, too
            os.killpg(workers[victim].pid, signal.SIGKILL)
        killed += workers[victim].wait() == -signal.SIGKILL
        workers[victim] = start(victim, log)
    assert killed >= kills // 2, f"only {killed} workers were killed; the others had ended"
    try:
        statuses = [worker.wait(900) for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
    said = log.read_text()
    assert statuses == [0, 0, 0], said
    return said


def start_worker(words: list[str], log: Path, more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a worker in a session of its own, so that a command and its worker are killed together."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command(*words, "--workers", "1"),
            env={**environment(), **(more or {})},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
