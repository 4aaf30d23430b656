"""The chips of this machine, dealt out to processes that see one of them each.

A process that has touched a device holds all that it sees, so whoever deals chips out must not have done so.
Needs the standard library alone.
"""

import dataclasses
import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

Environment: TypeAlias = Mapping[str, str]
"""Variables of a process's environment."""

_FIRST_PORT = 8476
_ASK = "import jax; print(jax.default_backend(), jax.local_device_count())"


@dataclasses.dataclass(frozen=True)
class Chips:
    """What a machine has to compute with."""

    platform: str
    """Of jax: cpu, gpu or tpu."""
    environments: tuple[Environment, ...]
    """For each chip what makes a process see that one alone."""


@functools.cache
def find_chips() -> Chips:
    """The chips of this machine. Where jax must be asked, another process asks it, and lets them go again."""
    if count := _count_tpu_chips():
        return Chips("tpu", tuple(map(_tpu_chip, range(count))))
    flags = os.environ.get("XLA_FLAGS", "")
    if os.environ.get("JAX_PLATFORMS") == "cpu" and "device_count" not in flags:
        return Chips("cpu", ({},))
    said = subprocess.run([sys.executable, "-P", "-c", _ASK], capture_output=True, text=True).stdout.split()
    platform, count = (said[0], int(said[1])) if said else ("cpu", 1)
    if platform == "cpu":  # several if XLA_FLAGS says so; the last of two values counts
        return Chips(platform, ({"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=1"},) * count)
    if platform not in ("gpu", "cuda", "rocm"):
        return Chips(platform, ({},))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return Chips(platform, tuple({"CUDA_VISIBLE_DEVICES": name} for name in visible.split(",")[:count]))


def _count_tpu_chips() -> int:
    """How many chips this host has. Asking jax would wait for the other hosts of a slice."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if (platforms and "tpu" not in platforms.split(",")) or importlib.util.find_spec("libtpu") is None:
        return 0
    return len([*Path("/dev").glob("accel[0-9]*"), *Path("/dev/vfio").glob("[0-9]*")])


def _tpu_chip(number: int) -> Environment:
    """What makes libtpu take one chip for a whole slice, beside processes with the others."""
    port = _FIRST_PORT + number
    return {
        "TPU_VISIBLE_CHIPS": str(number),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_ADDRESSES": f"localhost:{port}",
        "TPU_PROCESS_PORT": str(port),
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "CLOUD_TPU_TASK_ID": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
