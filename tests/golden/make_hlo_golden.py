"""Compiles a small program for a TPU slice and stores its HLO text; needs the extra [tpu].

    python -m tests.golden.make_hlo_golden

The program is a loop of five products of [16, 128] by [128, 128] on each of four chips, then two
sums over chips: float32 [128] and bfloat16 [128, 128].
"""

import re
from pathlib import Path

from bert_jax.tpu.topology import open_slice

FILE = Path(__file__).parent / "loop.hlo"


def make() -> str:
    """The text without what is not read and changes with every version: source lines, metadata."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(open_slice("v5e:2x2").devices), ("data",))
    everywhere, by_rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

    def program(kernel: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, _ = jax.lax.scan(lambda y, i: (jnp.tanh(y @ kernel) + i, None), x, jnp.arange(5, dtype=x.dtype))
        return y.astype(jnp.float32).sum(0), x.T @ y

    compiled = jax.jit(program, in_shardings=(everywhere, by_rows), out_shardings=everywhere)
    shapes = (jax.ShapeDtypeStruct((size, 128), jnp.bfloat16) for size in (128, 64))
    text = compiled.lower(*shapes).compile().as_text()
    computations = text[text.index("\n%") :]
    return re.sub(r", metadata=\{[^}]*\}", "", computations).lstrip()


if __name__ == "__main__":
    FILE.write_text(make())
