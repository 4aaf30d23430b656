"""Estimated cycles of a training step's matrix products, each compiled alone by the real TPU compiler.

Their sum, and the cycles of the attention kernel, which `tpu_compile.py` prints, say how fast the step could
be if all else were free. Products of attention are left out, as the kernel computes them. The flags are those
of `tpu_compile.py`. Needs the extra [tpu]; takes minutes.

    python benchmarks/tpu_products.py
    python benchmarks/tpu_products.py --batch 512 --topology v6e:2x2
"""

import collections
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from tpu_compile import compiled_work, parse_arguments, print_json

from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.tpu.hlo import read_costs
from bert_jax.tpu.topology import Slice, open_slice
from bert_jax.training.program import make_program
from data_pipeline.config import Phase


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product; those of equal shapes and types are equal."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    dtypes: tuple[str, ...]
    """Of both operands and of the result."""
    dimension_numbers: tuple
    """As `jax.lax.dot_general` takes them."""

    @property
    def flops(self) -> int:
        (contracted, _), (shared, _) = self.dimension_numbers
        once = math.prod(self.left[axis] for axis in (*contracted, *shared))
        return 2 * math.prod(self.left) * math.prod(self.right) // once

    @property
    def of_attention(self) -> bool:
        """Whether rows and heads are multiplied one by one, as only attention does."""
        return bool(self.dimension_numbers[1][0])


def products_of_step(
    experiment: Experiment, phase: Phase, device: jax.Device
) -> collections.Counter[Product]:
    """How often one chip computes each product in a step on its own rows."""
    task = PretrainingTask(experiment.objective, experiment.model)
    program = make_program(task, experiment, [device])
    batch = task.abstract_batch(phase, experiment.global_batch_size, experiment.data.max_instances_per_row)
    state, rate, key = program.abstract_state(), jax.ShapeDtypeStruct((), np.float32), jax.random.key(0)
    found: collections.Counter[Product] = collections.Counter()
    for product, times in _products(program.compiled_step.trace(state, batch, rate, key).jaxpr.jaxpr, 1):
        found[product] += times
    return found


def _products(jaxpr: Any, times: int) -> Iterator[tuple[Product, int]]:
    """The products of a program on a TPU, and how often it computes each."""
    chosen: dict[Any, int] = {}
    """Variables that say which branch a TPU takes, and the number of that branch."""
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        known = [chosen[x] for x in equation.invars if not hasattr(x, "val") and x in chosen]
        if name == "dot_general":
            operands = [x.aval for x in (*equation.invars, *equation.outvars)]
            dtypes = tuple(str(operand.dtype) for operand in operands)
            yield Product(operands[0].shape, operands[1].shape, dtypes, params["dimension_numbers"]), times
        elif name == "platform_index":
            platforms = params["platforms"]
            chosen[equation.outvars[0]] = next(i for i, p in enumerate(platforms) if p is None or "tpu" in p)
        elif name in ("clamp", "convert_element_type") and known:
            chosen[equation.outvars[0]] = known[0]
        elif name == "cond" and known:
            yield from _products(params["branches"][known[0]].jaxpr, times)
        elif name != "pallas_call":
            turns = params["length"] if name == "scan" else 1
            for inner in jax.tree.leaves(list(params.values())):
                if hasattr(inner := getattr(inner, "jaxpr", inner), "eqns"):
                    yield from _products(inner, times * turns)


def cycles(product: Product, where: Slice) -> int:
    """The compiler's estimate for a program that computes this product alone."""
    place = SingleDeviceSharding(where.devices[0])
    left, right = (
        jax.ShapeDtypeStruct(shape, dtype, sharding=place)
        for shape, dtype in zip((product.left, product.right), product.dtypes, strict=False)
    )

    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        result = jnp.dtype(product.dtypes[2])
        return jax.lax.dot_general(a, b, product.dimension_numbers, preferred_element_type=result)

    text = jax.jit(multiply).lower(left, right).compile().as_text()
    assert text is not None
    return read_costs(text, lambda kernel: 0).cycles


def main() -> None:
    args = parse_arguments(__doc__)
    where = open_slice(args.topology)
    experiment, phase = compiled_work(args, 1)
    peak_flops_a_cycle = where.chip.peak_flops / where.chip.clock_hz
    rows = []
    for product, times in products_of_step(experiment, phase, where.devices[0]).items():
        if not product.of_attention:
            alone = cycles(product, where)
            cost = {"times": times, "cycles": alone, "flops": product.flops}
            fraction = product.flops / alone / peak_flops_a_cycle
            rows.append({**cost, "fraction_of_peak": fraction, **vars(product)})
    rows.sort(key=lambda row: row["times"] * row["cycles"], reverse=True)
    total = sum(row["times"] * row["cycles"] for row in rows)
    print_json(args, {"cycles": total, "products": rows})


if __name__ == "__main__":
    main()
