"""Epochs of fine-tuning on a frozen encoder: with its features kept on disk, and computed in every step.

A BiLSTM is trained on the last layers of a model of `quickstart`'s size, or of --model, to tell the packages
of the installed documentation apart. The sides take turns, each run in a process of its own.

    python benchmarks/feature_cache.py > feature_cache.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bert_jax.formats.model_source import ModelSource
from bert_jax.formats.open_model import open_model
from bert_jax.studies.measuring import finetune_arguments
from bert_jax.tasks.finetuning.grid import Grid
from bert_jax.tasks.finetuning.run import finetune
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from data_pipeline.preparing.documentation_tasks import write_tasks

SIDES = ("cached", "computed")
# As the command `bert-jax finetune` sets for itself.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ}


def main() -> None:
    args = parse_arguments()
    if args.side:
        sys.exit(finetune_once(args))
    with tempfile.TemporaryDirectory() as directory:
        result = compare(args, Path(directory))
    print(json.dumps(result, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, help="any model that bert-jax opens")
    parser.add_argument("--turns", type=int, default=3, help="runs of each side")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Medians over turns: of the seconds of an epoch, and of the whole run, which computes the features."""
    if args.model is None:
        args.model = directory / "model"
        pretrain = ["bert-jax", "pretrain", "quickstart", f"--workdir={args.model}", "--num-train-steps=2"]
        subprocess.run(pretrain, stdout=subprocess.DEVNULL, check=True)
    write_tasks(directory / "tasks")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for turn in range(args.turns):
        for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
            output = directory / f"{side}-{turn}"
            flags = [f"--model={args.model}", f"--data={directory / 'tasks'}", f"--epochs={args.epochs}"]
            began = time.monotonic()
            command = [sys.executable, __file__, *flags, f"--output={output}", f"--side={side}"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
            seconds = time.monotonic() - began
            found[side].append({"run_seconds": round(seconds, 1), **epoch_of(output, args.epochs)})
    medians = {
        side: {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
        for side, turns in found.items()
    }
    ratios = {
        f"{name}_ratio": round(medians["computed"][name] / medians["cached"][name], 2)
        for name in medians["cached"]
    }
    return {**medians, **ratios, "epochs": args.epochs, "turns": found}


def finetune_once(args: argparse.Namespace) -> int:
    """Trains one trial, as one side does."""
    if args.side == "computed":
        Grid._feature_cache = lambda self: None  # type: ignore[method-assign]
    model = open_model(args.model)
    flags = {
        "learning_rate": (1e-3,),
        "batch_size": (32,),
        "epochs": (float(args.epochs),),
        "max_seq_length": 64,
        "frozen_layers": model.config.num_layers,
        "features.layers": (-2, -1),
        "features.lstm_layers": 1,
        "features.lstm_width": 128,
    }
    data = str(args.data / "package")
    return finetune(
        finetune_arguments("classify", flags, ModelSource(model=args.model), data, args.output), model
    )


def epoch_of(output: Path, epochs: int) -> dict[str, float]:
    """Seconds of training an epoch, and of an evaluation, from what the trial recorded."""
    (file,) = output.glob(f"trials/*/{METRICS_FILE}")
    rows = read_rows(file)
    training = sum(row["timing"]["seconds"] for row in rows if row["split"] == "train")
    evaluations = [row["timing"]["seconds"] for row in rows if row["split"] != "train"]
    return {
        "epoch_seconds": round(training / epochs, 2),
        "evaluation_seconds": round(statistics.median(evaluations), 2),
    }


if __name__ == "__main__":
    main()
