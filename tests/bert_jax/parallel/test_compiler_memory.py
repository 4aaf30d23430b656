"""Memory that a long compilation leaves behind goes back to the system."""

import ctypes
import os
import sys
from pathlib import Path

import jax
import jax.monitoring
import pytest

from bert_jax.parallel.compiler_memory import COMPILED, give_back_after_compiling
from tests.bert_jax.pretraining.test_run import compilations

BLOCK, COUNT = 4096, 25_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_a_long_compilation_ends_with_free_memory_given_back() -> None:
    give_back_after_compiling()
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(COUNT)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    # The last one stays, so that the heap cannot shrink from its end.
    for block in blocks[:-1]:
        libc.free(block)
    before = resident_bytes()
    jax.monitoring.record_event_duration_secs(COMPILED, 0.5)
    short = resident_bytes()
    jax.monitoring.record_event_duration_secs(COMPILED, 2.0)
    long = resident_bytes()
    libc.free(blocks[-1])
    assert before - short < BLOCK * COUNT / 2
    assert before - long > BLOCK * COUNT / 2


def test_jax_reports_compilations_by_this_name() -> None:
    with compilations() as seen:
        jax.jit(lambda x: x * 3 + 1)(2.0)
    assert seen
