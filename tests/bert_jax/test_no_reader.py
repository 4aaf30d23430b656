"""A process whose output nobody reads any more still saves, or ends, as it would otherwise."""

import os
import subprocess
import sys

import pytest

from tests.tiny_run import ended, environment

WRITES = """
import sys
from bert_jax.exit_status import write_error
write_error("a line")
sys.exit(7)
"""
# A shell starts commands in the background with SIGINT ignored, but `listen` sets its own handler.
IS_INTERRUPTED = """
import os, signal, sys
from bert_jax.parallel import interrupt
with interrupt.listen() as request:
    os.kill(os.getpid(), signal.SIGINT)
    print("a row of metrics", flush=True)
    print("an error", file=sys.stderr, flush=True)
    sys.exit(7 if request.requested() else 1)
"""
IS_INTERRUPTED_WITH_OTHERS = """
import signal, sys
from bert_jax.parallel import processes
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
processes._SharedInterrupt().pass_on(signal.SIGINT, None)
"""
LOSES_THE_OTHERS = """
from bert_jax.parallel import processes
processes.start = lambda: None
def lose():
    print("in the buffer")
    raise TimeoutError
processes.run_distributed(lose)
"""
DOES_NOT_CONNECT = """
import jax
from bert_jax.parallel import processes
processes.start = lambda: None
def barrier():
    print("in the buffer")
    raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out. Id: bert-jax:1")
processes.barrier = barrier
processes.run_distributed(lambda: 0)
"""
DOES_NOT_MEET = "from bert_jax.parallel import processes; processes._give_up(1)"
HANGS = """
import time
from bert_jax.parallel.watchdog import watch
with watch(0):
    print("in the buffer")
    time.sleep(60)
"""
FAILS = """
import sys
from bert_jax.exit_status import report
from data_pipeline.errors import Unfinished
sys.exit(report(Unfinished("a disk failed")))
"""
LOSES_ITS_LEASE = "from bert_jax.parallel.leases import end_process; end_process()"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (WRITES, 7),
        (IS_INTERRUPTED, 7),
        (IS_INTERRUPTED_WITH_OTHERS, 7),
        (LOSES_THE_OTHERS, 69),
        (DOES_NOT_CONNECT, 69),
        (DOES_NOT_MEET, 69),
        (HANGS, 69),
        (LOSES_ITS_LEASE, 69),
        (FAILS, 69),
    ],
    ids=[
        "writes",
        "interrupted",
        "interrupted with others",
        "loses others",
        "unconnected",
        "alone",
        "hangs",
        "lease lost",
        "fails",
    ],
)
def test_output_that_nobody_reads_changes_nothing(program: str, status: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment(), "BERT_JAX_HANG_SECONDS": "1", "PYTHONUNBUFFERED": ""},
        stdout=writing,
        stderr=writing,
        check=False,
        timeout=50,
    )
    os.close(writing)
    assert done.returncode == status


def test_output_that_is_read_is_left_alone() -> None:
    done = ended([sys.executable, "-c", IS_INTERRUPTED])
    assert (done.returncode, done.stdout) == (7, "a row of metrics\n")
    first, second = done.stderr.splitlines()
    assert first.startswith("SIGINT: saving after this step")
    assert second == "an error"
