"""Cycles of the kernels of attention and of rotary positions, for which a program's text has no estimate.

On request the compiler writes a kernel's final schedule: the bundles of instructions of a step, each of
which takes a cycle. The request must be made before libtpu is loaded, and the answer is a hundred megabytes,
so a kernel is compiled again by itself, in a process of its own that runs this module.
"""

import functools
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from bert_jax.model import rotation_kernel_tpu
from bert_jax.model.attention_kernel_tpu import fused_attention
from bert_jax.model.attention_tiling import step_of
from bert_jax.model.dropout import num_dropped
from bert_jax.tpu.hlo import Kernel
from bert_jax.tpu.topology import Slice, open_slice

_BUNDLE = re.compile(r"^ *0(x[0-9a-f]+)? .*", re.MULTILINE)
_BRANCH = re.compile(r"sbr\.rel \(!?%\w+\) target = \$region(\d+)")
_NAMES = {"attention": ("attention_forward", "attention_backward"), "rotation": ("rotation",)}
# A kernel is compiled by itself with so many rows that their arrays do not fit the vector memory all at once.
_ROWS = 64
# Arrays [B, N, K, T] in bfloat16; two numbers of each softmax are moved as well, and with dropout a bit of
# each score.
_MOVED_FORWARD, _MOVED_BACKWARD = 4, 7  # and what attention returned, if the backward pass takes it


def kernel_cycles(where: Slice, dropout_rate: float, kernel: Kernel) -> int:
    """Cycles that a chip takes for one call of a kernel.

    A step takes one cycle for each bundle or, if that is longer, the time to move its arrays from the chip's
    memory and back, which happens at the same time. What only the first or the last step of a head does is
    counted for these alone. A chip's cores share the heads.

    Args:
      where: the slice.
      dropout_rate: of the attention probabilities.
      kernel: attention, its gradient, or rotary positions; and its arrays.

    Raises:
      RuntimeError: the compiler wrote no schedule.
    """
    if kernel.name == "rotation":
        return _rotation_cycles(where, kernel)
    score_bias, (rows, heads, width, length) = kernel.operands[1:3]
    name, _, of_window = kernel.name.partition("_window_")
    window = int(of_window) if of_window else None
    dropped, is_forward = num_dropped(dropout_rate), name == "attention_forward"
    with where.in_use():
        step = step_of(heads, width, length, window, is_light=is_forward and not dropped)
    groups, steps_of_a_head = heads // step.heads, length // step.queries
    # The backward pass returns the gradients of biases last, if there are any. The forward pass has none.
    has_biases = is_forward or len(kernel.results) > 3
    sizes = (heads, width, length, score_bias[2], dropped, has_biases, window or 0)
    schedule = _schedules(where.name, "attention", *sizes)[name]
    bundles = schedule.of_every_step + schedule.of_some_step / steps_of_a_head
    moved = _MOVED_FORWARD if is_forward else _MOVED_BACKWARD + step.takes_output
    of_a_query = 2 * moved * width + 8 + (4 * step.keys / step.bits_of_word if dropped else 0)
    # It stays where it is while the next step adds the same.
    bias = (2 if score_bias[2] > 1 else 4) * math.prod(score_bias) * (groups if steps_of_a_head > 1 else 1)
    return _longer(where, rows * groups, bundles * steps_of_a_head, of_a_query * rows * heads * length + bias)


def _rotation_cycles(where: Slice, kernel: Kernel) -> int:
    (rows, heads, width, length), *tables = kernel.operands
    schedule = _schedules(where.name, "rotation", heads, width, length)["rotation"]
    steps = rows * heads // rotation_kernel_tpu.heads_of_step(heads, width, length)
    moved = 2 * 2 * rows * heads * width * length + 4 * sum(map(math.prod, tables))
    return _longer(where, steps, schedule.of_every_step, moved)


def _longer(where: Slice, parts: int, bundles: float, moved: float) -> int:
    """Cycles of moving so many bytes or, if that is longer, of computing parts of so many bundles each, which
    a chip's cores share."""
    seconds = moved / where.chip.hbm_bandwidth
    return int(max(bundles * -(-parts // where.chip.cores), seconds * where.chip.clock_hz))


class Schedule(NamedTuple):
    """How many bundles a step of a kernel has."""

    of_every_step: int
    of_some_step: int
    """Those that only the first or the last step of a head runs."""


@functools.cache
def _schedules(topology: str, what: str, *sizes: int) -> dict[str, Schedule]:
    """Kernel name -> schedule; `what` and `sizes` say what this module compiles when it is run."""
    with tempfile.TemporaryDirectory() as directory:
        told = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} --xla_jf_dump_to={directory}"
        ended = subprocess.run(
            [sys.executable, "-P", "-m", __name__, topology, what, *map(str, map(int, sizes))],
            env={**os.environ, "LIBTPU_INIT_ARGS": told},
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            return {name: _read(Path(directory), name) for name in _NAMES[what]}
        except ValueError:
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"the compiler wrote no schedule of {what}: {last}") from None


def _read(directory: Path, name: str) -> Schedule:
    files = directory.glob(f"*{name}*-final_bundles.txt")
    (file,) = (file for file in files if "analysis" not in file.name)
    return read_schedule(file.read_text())


def read_schedule(text: str) -> Schedule:
    """Counts the bundles of a step in the compiler's listing, in which each bundle is a line.

    Raises:
      ValueError: the text has no bundles.
    """
    bundles = [found[0] for found in _BUNDLE.finditer(text)]
    if not bundles:
        raise ValueError("no bundles")
    jumps = []
    for start, bundle in enumerate(bundles):
        if branch := _BRANCH.search(bundle):
            target = re.compile(rf"empty region {branch[1]}\b")
            ends = (start + n for n, later in enumerate(bundles[start:]) if target.search(later))
            jumps.append(range(start + 1, next(ends, start)))
    # Jumped over before the first step's arrays have come, unless there is one step.
    step = max(jumps, key=len, default=range(0))
    inside = [jump for jump in jumps if step.start < jump.start and jump.stop <= step.stop]
    of_some_step = sum(map(len, inside))
    return Schedule(len(bundles) - of_some_step, of_some_step)


def _compile_attention(
    where: Slice,
    heads: int,
    width: int,
    length: int,
    bias_queries: int,
    dropped: int,
    has_biases: int,
    window: int,
) -> None:
    """Compiles the forward and the backward kernel; `window` is 0 where there is none."""
    shape = functools.partial(_shape, where)

    def forward_and_backward(projections, biases, score_bias, seed):  # type: ignore[no-untyped-def]
        def attend(projections, biases):  # type: ignore[no-untyped-def]
            return fused_attention(
                projections, biases, score_bias, seed, heads, dropped, window or None, False
            )

        output, gradients = jax.vjp(attend, projections, biases)
        return output, gradients(output)

    projection = shape(_ROWS, heads, width, length)
    jax.jit(forward_and_backward).lower(
        (projection, projection, projection),
        shape(_ROWS, heads, 3, width, dtype=jnp.float32) if has_biases else None,
        shape(_ROWS, length, bias_queries, dtype=jnp.float32),
        shape(4, dtype=jnp.uint32),
    ).compile()


def _compile_rotation(where: Slice, heads: int, width: int, length: int) -> None:
    """Compiles the kernel."""
    table = _shape(where, _ROWS, width // 2, length, dtype=jnp.float32)
    rotate = jax.jit(functools.partial(rotation_kernel_tpu.rotate, interpret=False))
    rotate.lower(_shape(where, _ROWS, heads, width, length), table, table).compile()


def _shape(where: Slice, *sizes: int, dtype: jax.typing.DTypeLike = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=SingleDeviceSharding(where.devices[0]))


if __name__ == "__main__":
    _where, _sizes = open_slice(sys.argv[1]), map(int, sys.argv[3:])
    with _where.in_use():
        (_compile_rotation if sys.argv[2] == "rotation" else _compile_attention)(_where, *_sizes)
