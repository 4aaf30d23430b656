"""Milliseconds of one layer's attention with its gradients on a GPU: by XLA, by the kernel and by cuDNN.

All compute the same in bfloat16, except that cuDNN's has no dropout. They take turns; medians.

    python benchmarks/attention.py
    python benchmarks/attention.py --batch 64 --length 512 --heads 16
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.model.attention import Projections, attend_fused_on_gpu, attend_plainly
from bert_jax.model.linear import add_bias
from bert_jax.training.program import compiler_options


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=256, help="sequences")
    parser.add_argument("--length", type=int, default=128, help="tokens a sequence")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument("--rate", type=float, default=0.1, help="of dropout")
    parser.add_argument("--calls", type=int, default=20, help="calls a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    return parser.parse_args()


def attend_by_cudnn(projections: Projections, bias: jax.Array, key: jax.Array) -> jax.Array:
    """Takes neither the bias, which is 0 here, nor the key."""
    return jax.nn.dot_product_attention(*(add_bias(*x) for x in projections), implementation="cudnn")


def make_call(
    attend: Callable[..., jax.Array], arguments: tuple[Projections, jax.Array, jax.Array, jax.Array]
) -> Callable[[], object]:
    """Computes the output and all gradients once more; the result may still be on its way."""

    def with_gradients(projections: Projections, bias: jax.Array, key: jax.Array, gradient: jax.Array):  # type: ignore[no-untyped-def]
        mixed, pull_back = jax.vjp(lambda x: attend(x, bias, key), projections)
        return mixed, pull_back(gradient)

    options = compiler_options(jax.devices()[0])
    return functools.partial(jax.jit(with_gradients, compiler_options=options), *arguments)


def milliseconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        results = call()
    jax.block_until_ready(results)
    return (time.perf_counter() - start) / calls * 1e3


def main() -> None:
    args = parse_arguments()
    device = jax.devices()[0]
    if device.platform != "gpu":
        print(f"attention.py: error: it needs a GPU; jax found a {device.platform}", file=sys.stderr)
        sys.exit(2)
    keys = jax.random.split(jax.random.key(0), 4)
    shape = (args.batch, args.length, args.heads, args.width)
    *products, gradient = (jax.random.normal(key, shape, jnp.bfloat16) for key in keys)
    no_offset = jnp.zeros((args.heads, args.width))
    arguments = (
        tuple((product, no_offset) for product in products),
        jnp.zeros((args.batch, 1, 1, args.length)),
        jax.random.key(1, impl="rbg"),
        gradient,
    )
    sides: dict[str, Callable[..., jax.Array]] = {
        "xla": functools.partial(attend_plainly, rate=args.rate),
        "kernel": functools.partial(attend_fused_on_gpu, rate=args.rate),
        "cudnn_without_dropout": attend_by_cudnn,
    }
    calls = {name: make_call(attend, arguments) for name, attend in sides.items()}
    for call in calls.values():
        jax.block_until_ready(call())
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(args.repeats):
        for name, call in calls.items():
            turns[name].append(milliseconds(call, args.calls))
    medians = {name: statistics.median(times) for name, times in turns.items()}
    report = {"settings": vars(args), "device": device.device_kind, "milliseconds": medians, "all": turns}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
