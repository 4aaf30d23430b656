"""A run killed with SIGKILL at any moment ends with bitwise the state and metrics of an undisturbed one.

Its programs are optimized, as a user's are. The default is a few kills;
`BERT_JAX_KILLS=20 pytest -m slow tests/test_kill.py` does as many as are promised.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_jax.training.checkpoint_files import DIRECTORY
from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from tests.tiny_run import arguments, assert_same_run, command, environment

KILLS = int(os.environ.get("BERT_JAX_KILLS", "3"))
STEPS = 120 + 40 * KILLS
POLL_SECONDS, PATIENCE_SECONDS = 0.002, 900


def start(workdir: Path, corpus: Path) -> subprocess.Popen[bytes]:
    with (workdir.parent / f"{workdir.name}.log").open("ab") as log:
        return subprocess.Popen(
            command(*arguments(workdir, corpus, "--num-train-steps", str(STEPS))),
            env={**environment(), "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""},
            stdout=log,
            stderr=log,
        )


def finish(workdir: Path, corpus: Path) -> None:
    process = start(workdir, corpus)
    try:
        status = process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
    assert status == 0, (workdir.parent / f"{workdir.name}.log").read_text()


def kill_when(process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> bool:
    """Kills the process as soon as `is_time` says so; returns False if it ended before."""
    while process.poll() is None and not is_time():
        time.sleep(POLL_SECONDS)
    process.kill()
    return process.wait() == -signal.SIGKILL


def at_any_time(workdir: Path, draw: random.Random) -> Callable[[], bool]:
    """A random moment within eight seconds: during start-up, compilation or training."""
    moment = time.monotonic() + draw.uniform(0, 8)
    return lambda: time.monotonic() >= moment


def after_some_steps(workdir: Path, draw: random.Random) -> Callable[[], bool]:
    """A moment shortly after one of the first rows of metrics that this start of the run adds."""
    known = len(read_rows(workdir / METRICS_FILE))
    wanted, delay = draw.randint(1, 3), draw.uniform(0, 0.1)

    def is_time() -> bool:
        if len(read_rows(workdir / METRICS_FILE)) < known + wanted:
            return False
        time.sleep(delay)
        return True

    return is_time


def in_a_checkpoint(workdir: Path, draw: random.Random) -> Callable[[], bool]:
    """A moment while a checkpoint is written, once this start has finished one: so every start advances."""
    newest, delay = max(saved_steps(workdir), default=-1), draw.uniform(0, 0.02)

    def is_time() -> bool:
        if max(saved_steps(workdir), default=-1) <= newest or not list((workdir / DIRECTORY).glob("*tmp*")):
            return False
        time.sleep(delay)
        return True

    return is_time


@pytest.mark.slow
def test_killed_runs_end_like_an_undisturbed_one(corpus: Path, tmp_path: Path) -> None:
    finish(tmp_path / "undisturbed", corpus)

    draw = random.Random(os.environ.get("BERT_JAX_KILL_SEED", "0"))
    killed, kills = tmp_path / "killed", 0
    for number in range(KILLS):
        moment = (in_a_checkpoint, after_some_steps, at_any_time)[number % 3]
        kills += kill_when(start(killed, corpus), moment(killed, draw))
    finish(killed, corpus)

    assert kills >= 2, "the run ended before it could be killed"
    assert_same_run(killed, tmp_path / "undisturbed")
    print(f"{kills} kills of a run of {STEPS} steps")
