"""Real tokens a second of training on packed rows, beside rows of one sequence each.

    python benchmarks/packing.py CORPUS

CORPUS is a directory made by `bert-jax prepare`. Both sides train the same small model on the same device, in
turns, on batches that were made before. `gain` is the ratio of their tokens a second. `expected_gain` is
the ratio of their fractions of real tokens: the gain if a packed row took as long as any other.
Prints JSON.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bert_jax.model_config import ModelConfig
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.training.program import make_program
from bert_jax.workdir.provenance import installed_versions
from data_pipeline.config import DataConfig, Phase
from data_pipeline.pretraining.batches import training_batches

# Rows over which the fraction of real positions is measured. A step takes equally long whatever its rows
# hold, so these may be more rows than are timed.
ROWS_COUNTED = 4096


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", help="directory made by `bert-jax prepare`")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batch", type=int, default=8, help="rows a step")
    parser.add_argument("--length", type=int, default=512, help="positions a row")
    parser.add_argument("--predictions", type=int, default=77, help="predicted tokens a row")
    parser.add_argument("--max-instances", type=int, default=4, help="sequences that a packed row may hold")
    parser.add_argument("--steps", type=int, default=4, help="steps a turn")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each side")
    return parser.parse_args()


def make_experiment(args: argparse.Namespace, max_instances: int) -> Experiment:
    model = ModelConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_heads=args.heads,
        intermediate_size=4 * args.hidden,
        max_position_embeddings=args.length,
        dtype=args.dtype,
    )
    phases = (Phase(args.length, args.predictions),)
    data = DataConfig(phases=phases, max_instances_per_row=max_instances)
    return Experiment(model=model, data=data, global_batch_size=args.batch)


def make_side(args: argparse.Namespace, max_instances: int) -> tuple[Callable[[int], float], float]:
    """A function that does the steps of a turn and returns its seconds; the fraction of real positions."""
    experiment = make_experiment(args, max_instances)
    task = PretrainingTask(experiment.objective, experiment.model)
    program = make_program(task, experiment, jax.devices()[:1])
    num_steps = max(args.steps * (args.repeats + 1), ROWS_COUNTED // args.batch)
    batches = list(
        training_batches(
            args.corpus,
            experiment.data,
            seed=0,
            global_batch_size=args.batch,
            num_train_steps=num_steps,
            first_step=0,
        )
    )
    state = program.init()

    def turn(number: int) -> float:
        nonlocal state
        own = [program.put(batch) for batch in batches[number * args.steps : (number + 1) * args.steps]]
        jax.block_until_ready((own, state.step))
        began = time.perf_counter()
        for batch in own:
            state = program.train_step(state, batch, np.float32(1e-4))
        jax.block_until_ready(state)
        return time.perf_counter() - began

    positions = num_steps * args.batch * args.length
    return turn, sum(int(batch["input_mask"].sum()) for batch in batches) / positions


def measure(args: argparse.Namespace) -> dict[str, Any]:
    sides = {"one_a_row": make_side(args, 1), "packed": make_side(args, args.max_instances)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn, _ in sides.values():
        turn(0)  # compiles
    for number in range(1, args.repeats + 1):
        for name, (turn, _) in list(sides.items())[:: -1 if number % 2 else 1]:
            seconds[name].append(turn(number))
    positions = args.steps * args.batch * args.length
    report: dict[str, Any] = {"settings": vars(args)}
    for name, (_, real) in sides.items():
        rates = [real * positions / s for s in seconds[name]]
        report[name] = {
            "real_positions": real,
            "tokens_per_second": statistics.median(rates),
            "tokens_per_second_range": [min(rates), max(rates)],
        }
    for gain, key in (("gain", "tokens_per_second"), ("expected_gain", "real_positions")):
        report[gain] = report["packed"][key] / report["one_a_row"][key]
    device = jax.devices()[0].device_kind
    machine = {"platform": platform.platform(), "device": device, "cores": os.cpu_count()}
    return report | {"machine": machine, "versions": installed_versions(("bert-jax", "jax", "numpy"))}


def main() -> None:
    print(json.dumps(measure(parse_arguments()), indent=2))


if __name__ == "__main__":
    main()
