"""Ctrl-C sent to a separate process: the first is acknowledged, the second ends it whatever it does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax.training.checkpoints import saved_steps
from tests.tiny_run import arguments, command, environment, write_corpus


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that prints what it compiles; its eight layers take seconds to compile."""
    flags = ("--model.num-layers", "8")
    with subprocess.Popen(
        command(*arguments(tmp_path / "w", write_corpus(tmp_path / "corpus"), *flags)),
        env={**environment(tmp_path / "compiled"), "JAX_LOG_COMPILES": "1"},
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


def test_a_second_ctrl_c_ends_a_run_that_compiles(process: subprocess.Popen[str], tmp_path: Path) -> None:
    read_until(process, "Finished jaxpr to MLIR module conversion jit(train_step)")
    time.sleep(0.5)  # until Python has done its part and XLA is compiling
    process.send_signal(signal.SIGINT)
    said = read_until(process, "SIGINT: saving after this step; a second Ctrl-C ends at once")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == -signal.SIGINT
    assert "Finished XLA compilation of jit(train_step)" not in said + process.stdout.read()
    assert saved_steps(tmp_path / "w") == []


CTRL_C = "import os, signal, time; press = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
# A shell starts commands in the background with SIGINT ignored, and so this one's, if the tests are one.
NOT_IGNORED = "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
LISTENING = "ctrl_c.listen()\n"
LIKE_PREPARE = "signal.signal(signal.SIGINT, ctrl_c.raise_interrupt)\n"
IN_AN_IMPORT = "import slow"
IN_A_CALLBACK_OF_THE_COLLECTOR = """
import gc
from jax._src import lib
lib._jax.collect_garbage = lambda: (press(), time.sleep(0.1), print("whole", flush=True))
gc.collect()
"""


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (LISTENING, IN_AN_IMPORT),
        (LIKE_PREPARE, IN_AN_IMPORT),
        (LISTENING, IN_A_CALLBACK_OF_THE_COLLECTOR),
    ],
    ids=["in an import", "in an import of prepare", "in the collector"],
)
def test_ctrl_c_waits_until_it_can_arrive(begin: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"{CTRL_C}press()\ntime.sleep(0.1)\nprint('whole', flush=True)")
    program = f"{CTRL_C}{NOT_IGNORED}from bert_jax.cli import ctrl_c\n{begin}{code}\ntime.sleep(60)"
    paths = f"{Path(__file__).parent.parent}:{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert set(done.stdout.split()) == {"whole"}
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "ignored" not in done.stderr
