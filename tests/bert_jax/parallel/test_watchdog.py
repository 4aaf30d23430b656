"""A run that makes no step for too long is ended, and one that is busy otherwise is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.parallel.watchdog import describe
from tests.tiny_run import arguments, ended

HANGS = """
import time
from bert_jax.parallel.watchdog import watch

def wait_for_a_device():
    time.sleep({seconds})

with watch(7) as watchdog:
    watchdog.report(8)
    {happens}
print("done")
"""


def ends(happens: str, allowed: str = "1", seconds: int = 60) -> tuple[int, str]:
    """Exit status and standard error of a process in which something happens after step 8; waiting for a
    device takes it so many seconds."""
    program = HANGS.format(happens=happens, seconds=seconds)
    done = ended([sys.executable, "-c", program], BERT_JAX_HANG_SECONDS=allowed)
    return done.returncode, done.stderr


def test_a_process_that_hangs_says_where_and_ends() -> None:
    status, said = ends("wait_for_a_device()")
    assert status == 69
    assert "in wait_for_a_device" in said
    assert said.splitlines()[-1].startswith("bert-jax: error: no step in 1 s, after step 8;")


@pytest.mark.slow
def test_one_that_evaluates_does_not_hang() -> None:
    assert ends("with watchdog.paused(): wait_for_a_device()", allowed="3", seconds=6) == (0, "")


def test_with_zero_seconds_none_hangs() -> None:
    assert ends("wait_for_a_device()", allowed="0", seconds=3) == (0, "")


SLOW_EVALUATION = """
import sys, time
from bert_jax.cli.main import main
from bert_jax.pretraining import run

make_evaluation = run.make_evaluation

def make_slow_evaluation(*args):
    evaluation = make_evaluation(*args)

    def evaluate(*args):
        print("slow evaluation", flush=True)
        time.sleep(20)
        return evaluation(*args)

    return evaluate

run.make_evaluation = make_slow_evaluation
sys.exit(main(sys.argv[1:]))
"""


SAVE_THAT_NEVER_ENDS = """
import sys, time
from bert_jax.cli.main import main
from bert_jax.training.checkpoints import Checkpoints

def wait_for_a_disk(checkpoints, steps):
    time.sleep(600)

Checkpoints._finish_save = wait_for_a_disk
sys.exit(main(sys.argv[1:]))
"""


def train_two_steps(program: str, workdir: Path, corpus: Path) -> subprocess.CompletedProcess[str]:
    words = arguments(workdir, corpus, "--num-train-steps", "2")
    return ended([sys.executable, "-c", program, *words], BERT_JAX_HANG_SECONDS="15")


@pytest.mark.slow
def test_a_run_may_evaluate_for_as_long_as_it_takes(corpus: Path, tmp_path: Path) -> None:
    done = train_two_steps(SLOW_EVALUATION, tmp_path, corpus)
    assert done.returncode == 0, done.stderr
    assert "slow evaluation" in done.stdout


@pytest.mark.slow
def test_a_last_save_that_never_ends_is_noticed(corpus: Path, tmp_path: Path) -> None:
    done = train_two_steps(SAVE_THAT_NEVER_ENDS, tmp_path, corpus)
    assert done.returncode == 69, done.stderr
    assert "in wait_for_a_disk" in done.stderr
    assert "no step in 15 s, after step 2; the stacks" in done.stderr


def test_a_time_that_is_no_number_is_refused() -> None:
    status, said = ends("pass", allowed="soon")
    assert status == 1
    assert "BERT_JAX_HANG_SECONDS is 'soon'; it must be a whole number" in said


@pytest.mark.parametrize(
    ("steps", "named"),
    [({}, ""), ({0: 9, 1: 9}, ""), ({0: 9, 1: 4, 2: 8}, "; process 1, 2 is behind the others")],
)
def test_processes_behind_the_others_are_named(steps: dict[int, int], named: str) -> None:
    assert describe(30, 9, steps).startswith(f"no step in 30 s, after step 9{named}; the stacks")
