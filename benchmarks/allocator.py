"""What two settings of the C library's allocator are worth to training on a CPU.

Huge pages (`bert_jax/cli/huge_pages.py`): milliseconds of a training step with and without them. Returning
memory after compiling (`bert_jax/parallel/compiler_memory.py`): MiB that the process holds after its first
steps with and without it. Each turn is a process of its own, and the settings take turns.

    python benchmarks/allocator.py
    python benchmarks/allocator.py --layers 12 --hidden 768 --heads 12 --batch 8 --steps 4
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax.monitoring
from train_step import make_ours

SETTINGS = {
    "neither": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0", "KEEP_COMPILER_MEMORY": "1"},
    "returned": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"},
    "huge pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "KEEP_COMPILER_MEMORY": "1"},
    "both": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
}


def main() -> None:
    args = parse_arguments()
    if args.worker:
        work(args)
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    for repeat in range(args.repeats):
        for name, variables in list(SETTINGS.items())[:: -1 if repeat % 2 else 1]:
            command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
            done = subprocess.run(
                command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True
            )
            found[name].append(json.loads(done.stdout))
    print(f"{'':<12}{'ms a step':>12}{'fastest':>10}{'MiB held':>10}")
    for name, turns in found.items():
        milliseconds = [turn["milliseconds"] for turn in turns]
        held = statistics.median(turn["mebibytes"] for turn in turns)
        print(f"{name:<12}{statistics.median(milliseconds):>12.1f}{min(milliseconds):>10.1f}{held:>10.0f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="sequences a step")
    parser.add_argument("--length", type=int, default=64, help="tokens a sequence")
    parser.add_argument("--predictions", type=int, default=10, help="predicted tokens a sequence")
    parser.add_argument("--steps", type=int, default=30, help="steps a turn")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each setting")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(dtype="float32", prng="rbg")
    return parser.parse_args()


def work(args: argparse.Namespace) -> None:
    """Takes the steps of one turn and prints what it measured."""
    side = make_ours(args)
    if "KEEP_COMPILER_MEMORY" in os.environ:
        jax.monitoring.clear_event_listeners()
    for _ in range(3):
        side.step()
    side.loss()
    held, began = resident_bytes(), time.perf_counter()
    for _ in range(args.steps):
        side.step()
    side.loss()
    milliseconds = 1e3 * (time.perf_counter() - began) / args.steps
    print(json.dumps({"milliseconds": milliseconds, "mebibytes": held / 2**20}))


def resident_bytes() -> int:
    """Memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
