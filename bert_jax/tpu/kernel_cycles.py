"""Cycles of the attention kernel, for which a program's text has no estimate.

On request the compiler writes the kernel's final schedule, which says how many bundles of instructions a
step takes, at one bundle a cycle. The request must be made before libtpu is loaded, and the answer is a
hundred megabytes, so the kernel is compiled again by itself, in a process of its own that runs this module.
"""

import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from bert_jax.model.attention_kernel_tpu import fused_attention, step_of
from bert_jax.model.dropout import num_dropped
from bert_jax.tpu.hlo import Kernel
from bert_jax.tpu.topology import Slice, open_slice

_BUNDLES = re.compile(r"total scheduled bundles:\s+(\d+)")
# Arrays [B, N, K, T] in bfloat16; two numbers of each softmax are moved as well, and with dropout a bit of
# each score.
_MOVED_FORWARD, _MOVED_BACKWARD = 4, 7


def kernel_cycles(where: Slice, dropout_rate: float, kernel: Kernel) -> int:
    """Cycles that a chip takes for one call of the attention kernel.

    A step takes one cycle for each bundle or, if that is longer, the time to move its arrays from the chip's
    memory and back, which happens at the same time. A chip's cores share the steps.

    Args:
      where: the slice.
      dropout_rate: of the attention probabilities.
      kernel: which of the two, and its operands.

    Raises:
      RuntimeError: the compiler wrote no schedule.
    """
    score_bias, (rows, heads, width, length) = kernel.operands[1:3]
    name, _, window = kernel.name.partition("_window_")
    step = step_of(heads, length, int(window) if window else None)
    steps = rows * (heads // step.heads) * (length // step.queries)
    dropped = num_dropped(dropout_rate)
    bundles = _bundles(where.name, heads, width, length, score_bias[2], dropped, window)[name]
    moved = _MOVED_FORWARD if name == "attention_forward" else _MOVED_BACKWARD
    of_a_query = 2 * moved * width + 8 + (step.keys / 8 if dropped else 0)
    seconds = of_a_query * rows * heads * length / where.chip.hbm_bandwidth
    return max(bundles * -(-steps // where.chip.cores), int(seconds * where.chip.clock_hz))


@functools.cache
def _bundles(
    topology: str, heads: int, width: int, length: int, bias_queries: int, dropped: int, window: str
) -> dict[str, int]:
    """Kernel name -> bundles in a step, for the forward and the backward kernel; `window` may be empty."""
    sizes = map(str, (heads, width, length, bias_queries, dropped, *([window] if window else [])))
    with tempfile.TemporaryDirectory() as directory:
        told = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} --xla_jf_dump_to={directory}"
        ended = subprocess.run(
            [sys.executable, "-P", "-m", __name__, topology, *sizes],
            env={**os.environ, "LIBTPU_INIT_ARGS": told},
            capture_output=True,
            text=True,
            check=False,
        )
        names = ("attention_forward", "attention_backward")
        try:
            return {name: _read(Path(directory), name) for name in names}
        except ValueError:
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"the compiler wrote no schedule of the attention kernel: {last}") from None


def _read(directory: Path, name: str) -> int:
    (file,) = directory.glob(f"*{name}*schedule-analysis_final_bundles.txt")
    found = _BUNDLES.search(file.read_text())
    if found is None:
        raise ValueError(file.name)
    return int(found[1])


def _compile(
    where: Slice,
    heads: int,
    width: int,
    length: int,
    bias_queries: int,
    dropped: int,
    window: int | None = None,
) -> None:
    """Compiles the forward and the backward kernel for one row."""

    def shape(*sizes: int, dtype: jax.typing.DTypeLike = jnp.bfloat16) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=SingleDeviceSharding(where.devices[0]))

    def forward_and_backward(projections, biases, score_bias, seed):  # type: ignore[no-untyped-def]
        def attend(projections, biases):  # type: ignore[no-untyped-def]
            return fused_attention(projections, biases, score_bias, seed, heads, dropped, window, False)

        output, gradients = jax.vjp(attend, projections, biases)
        return output, gradients(output)

    projection = shape(1, heads, width, length)
    jax.jit(forward_and_backward).lower(
        (projection, projection, projection),
        shape(1, heads, 3, width, dtype=jnp.float32),
        shape(1, length, bias_queries, dtype=jnp.float32),
        shape(4, dtype=jnp.uint32),
    ).compile()


if __name__ == "__main__":
    _compile(open_slice(sys.argv[1]), *map(int, sys.argv[2:]))
