"""Ctrl-C: the first is acknowledged, the second ends the process whatever it does; nothing is lost."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax.cli import pretrain
from bert_jax.cli.main import main
from bert_jax.training.checkpoints import saved_steps
from tests.tiny_run import arguments, command, ended, environment, write_corpus


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that prints what it compiles; its eight layers take seconds to compile."""
    flags = ("--model.num-layers", "8")
    with subprocess.Popen(
        command(*arguments(tmp_path / "w", write_corpus(tmp_path / "corpus"), *flags)),
        env={**environment(), "JAX_ENABLE_COMPILATION_CACHE": "0", "JAX_LOG_COMPILES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """The output up to the line that contains the text."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(said)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_run_that_compiles(process: subprocess.Popen[str], tmp_path: Path) -> None:
    read_until(process, "Finished jaxpr to MLIR module conversion jit(train_step)")
    time.sleep(0.5)  # until Python has done its part and XLA is compiling
    process.send_signal(signal.SIGINT)
    said = read_until(process, "SIGINT: saving after this step; Ctrl-C now ends at once")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    assert "Finished XLA compilation of jit(train_step)" not in said + process.stdout.read()
    assert saved_steps(tmp_path / "w") == []


@pytest.mark.slow
def test_a_run_whose_output_ends_by_the_same_ctrl_c_saves(tmp_path: Path) -> None:
    """As under `2>&1 | tee log`, which Ctrl-C ends too; every step prints a row."""
    flags = ("--num-train-steps", "100000", "--log-every", "1", "--checkpoint-every", "100000")
    words = arguments(tmp_path / "w", write_corpus(tmp_path / "corpus"), *flags)
    with subprocess.Popen(
        command(*words), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        read_until(process, "step 10/100000 train")
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(60) == 75
    assert len(saved_steps(tmp_path / "w")) == 1


def test_ctrl_c_while_a_finished_run_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pretrain, "pretrain", lambda *_: 0)
    monkeypatch.setattr(pretrain, "show", lambda _: signal.raise_signal(signal.SIGINT))
    # Tests that were started in the background have SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(arguments(tmp_path / "w", tmp_path)) == 75
    finally:
        signal.signal(signal.SIGINT, before)
    said = capfd.readouterr().err  # libtpu, where it is installed, says something too
    assert said.endswith("SIGINT: training is finished and saved; run the same command again to show it\n")
    assert "Traceback" not in said


COMMAND = """
import os, signal, time

def run(args):
    time.sleep(60)

os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.1)
print("whole", flush=True)
"""
"""The module of a command, during whose import Ctrl-C is pressed."""

# A shell starts commands in the background with SIGINT ignored, and so this one's, if the tests are one.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from bert_jax import cli
from bert_jax.cli import flags, main
main.COMMANDS["slow"] = "sleeps"
cli.__path__.append(sys.argv[1])
flags.__path__.append(f"{sys.argv[1]}/flags")
sys.exit(main.main(["slow"]))
"""


def test_ctrl_c_waits_until_an_import_is_done(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(COMMAND)
    (tmp_path / "flags").mkdir()
    (tmp_path / "flags" / "slow.py").write_text("def parse(argv): return None")
    root = str(Path(__file__).parent.parent)
    done = ended([sys.executable, "-c", PROGRAM, str(tmp_path)], PYTHONPATH=root)
    assert done.stdout == "whole\n"
    assert done.stderr == "bert-jax: error: interrupted before there was anything to save\n"
    assert done.returncode == 130
