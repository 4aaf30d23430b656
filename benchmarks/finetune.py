"""Quality, speed and memory of fine-tuning, beside Hugging Face transformers in PyTorch.

Both sides start from the same weights, see the same token ids in the same order, and have the same
optimizer, schedule, dropout and number of seeds; their answers are scored by the same code. transformers pads
each batch to its longest sequence and predicts in the order of the file, as its Trainer does. Every run is a
process of its own on the CPU, the sides take turns, and finished runs are kept in OUTPUT/runs.jsonl, so the
same command resumes where it stopped.

    python benchmarks/finetune.py --model MODEL --glue GLUE --squad SQUAD --output OUTPUT
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("finetune_worker.py")
SIDES = ("bert_jax", "transformers")


@dataclass(frozen=True)
class Recipe:
    """How a task is trained, by both sides."""

    learning_rate: float = 5e-5
    batch_size: int = 32
    epochs: float = 3.0
    train_rows: int | None = None
    """Number of training rows used, from the first; None for all."""


RECIPES = {
    "cola": Recipe(),
    "stsb": Recipe(),
    "sst2": Recipe(train_rows=10_000),
    "squad": Recipe(batch_size=16, epochs=2.0),
}


def make_recipe(args: argparse.Namespace, task: str) -> Recipe:
    changes = {field.name: getattr(args, field.name) for field in fields(Recipe)}
    return replace(RECIPES[task], **{name: value for name, value in changes.items() if value is not None})


def run_job(args: argparse.Namespace, task: str, side: str, seed: int) -> dict[str, Any]:
    recipe = asdict(make_recipe(args, task))
    flags = {
        "model": args.model,
        "data": args.squad if task == "squad" else args.glue,
        "seed": seed,
        **{name: value for name, value in recipe.items() if value is not None},
    }
    command = [sys.executable, str(WORKER), side, task]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    # Both sides get the huge pages that `bert-jax finetune` asks glibc for.
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ, "JAX_PLATFORMS": "cpu"}
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if answer.returncode:
        sys.exit(f"{task}, {side}, seed {seed}: ended with status {answer.returncode}")
    key = {"task": task, "side": side, "seed": seed, "recipe": recipe}
    return key | json.loads(answer.stdout.splitlines()[-1])


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Summary of one side's runs of one task."""
    metric = runs[0]["metric"]
    scores = [run["metrics"][metric] for run in runs]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    medians = (
        "train_rows_per_second",
        "train_positions_per_token",
        "predict_rows_per_second",
        "compile_seconds",
        "peak_gib",
    )
    return {
        "metric": metric,
        "scores": scores,
        "mean": statistics.mean(scores),
        "standard_error": spread / len(scores) ** 0.5,
        **{name: statistics.median(run[name] for run in runs) for name in medians},
    }


def report(args: argparse.Namespace, runs: list[dict[str, Any]]) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for task in args.tasks:
        of_task = [run for run in runs if run["task"] == task]
        sides = {side: summarise([run for run in of_task if run["side"] == side]) for side in SIDES}
        ours, theirs = sides.values()
        tasks[task] = {
            "recipe": asdict(make_recipe(args, task)),
            **sides,
            "not_below": ours["mean"] >= theirs["mean"] - theirs["standard_error"],
            "train_ratio": ours["train_rows_per_second"] / theirs["train_rows_per_second"],
            "predict_ratio": ours["predict_rows_per_second"] / theirs["predict_rows_per_second"],
            "memory_ratio": ours["peak_gib"] / theirs["peak_gib"],
        }
    return {"machine": platform.platform(), "seeds": args.seeds, "tasks": tasks}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face directory of a BERT encoder")
    parser.add_argument("--glue", type=Path, help="directory with CoLA, STS-B, SST-2")
    parser.add_argument("--squad", type=Path, help="directory with train-v1.1*.json and dev-v1.1.json")
    parser.add_argument("--output", type=Path, required=True, help="directory that keeps finished runs")
    parser.add_argument("--tasks", nargs="+", choices=tuple(RECIPES), default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--train-rows", type=int, help="train on the first so many rows only")
    return parser.parse_args()


def is_asked_for(args: argparse.Namespace, run: dict[str, Any]) -> bool:
    """Whether a kept run was made with these arguments."""
    same = run["recipe"] == asdict(make_recipe(args, run["task"])) and run.get("inputs") == inputs_of(args)
    return same and run["seed"] < args.seeds


def inputs_of(args: argparse.Namespace) -> dict[str, str]:
    return {name: str(getattr(args, name)) for name in ("model", "glue", "squad")}


def main() -> None:
    args = parse_arguments()
    args.output.mkdir(parents=True, exist_ok=True)
    file = args.output / "runs.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    runs = [run for run in map(json.loads, lines) if is_asked_for(args, run)]
    done = {(run["task"], run["side"], run["seed"]) for run in runs}
    for task in args.tasks:
        for seed in range(args.seeds):
            for side in SIDES if seed % 2 == 0 else SIDES[::-1]:
                if (task, side, seed) not in done:
                    runs.append({**run_job(args, task, side, seed), "inputs": inputs_of(args)})
                    with file.open("a", encoding="utf-8") as kept:
                        kept.write(json.dumps(runs[-1]) + "\n")
    print(json.dumps(report(args, runs), indent=2))


if __name__ == "__main__":
    main()
