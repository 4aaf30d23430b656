"""Returns the memory that XLA's compiler worked in to the system.

Compiling a training step takes a few hundred MiB in many small pieces. Left alone, the C library keeps
them for the whole run, though training has no use for them: 250 MiB of 1,090 with a model of quickstart's
size, as `python benchmarks/allocator.py` measures.
"""

import ctypes
import functools
import sys

import jax.monitoring

COMPILED = "/jax/core/compile/backend_compile_duration"
_WORTHWHILE_SECONDS = 1.0


@functools.cache
def give_back_after_compiling() -> None:
    """Returns memory to the system after every later compilation of a second or more, if glibc is there."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return

    def trim(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED and duration_secs >= _WORTHWHILE_SECONDS:
            ctypes.CDLL(None).malloc_trim(0)

    jax.monitoring.register_event_duration_secs_listener(trim)
