"""Epochs of fine-tuning on a frozen encoder: with its features kept on disk, and computed in every step.

A BiLSTM is trained on the last layers of a model of `quickstart`'s size, or of --model, to tell the packages
of the installed documentation apart. The sides take turns, each run in a process of its own.

    python benchmarks/feature_cache.py --output feature_cache.json
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bert_jax.cli.huge_pages import restart_with_huge_pages
from bert_jax.cli.main import main as bert_jax
from bert_jax.formats.open_model import open_model
from bert_jax.tasks.finetuning.grid import Grid
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from data_pipeline.preparing.documentation_tasks import write_tasks

SIDES = ("cached", "computed")


def main() -> None:
    args = parse_arguments()
    if args.side:
        restart_with_huge_pages()
        sys.exit(finetune(args))
    with tempfile.TemporaryDirectory() as directory:
        result = compare(args, Path(directory))
    print(json.dumps(result, indent=2))
    if args.output:
        args.output.write_text(json.dumps(result, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, help="any model that bert-jax opens")
    parser.add_argument("--turns", type=int, default=3, help="runs of each side")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", type=Path, help="JSON file; by default printed only")
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
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
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


def finetune(args: argparse.Namespace) -> int:
    """Trains one trial, as one side does."""
    if args.side == "computed":
        Grid._feature_cache = lambda self: None  # type: ignore[method-assign]
    layers = open_model(args.model).config.num_layers
    features = ["--features.layers", "-2", "-1", "--features.lstm-layers=1", "--features.lstm-width=128"]
    return bert_jax(
        [
            *("finetune", "classify", f"--model={args.model}", f"--data={args.data / 'package'}"),
            *(
                f"--output={args.output}",
                f"--epochs={args.epochs}",
                "--learning-rate=1e-3",
                "--batch-size=32",
            ),
            *("--max-seq-length=64", f"--frozen-layers={layers}", *features),
        ]
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
