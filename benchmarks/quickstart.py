"""What today's parts learn in the wall time of BERT as published: `quickstart` beside `quickstart_bert`.

Both run on one corpus. A few short runs in turns give the seconds that a step of each takes; `quickstart`
then has as many steps as fit into the time of `quickstart_bert`, with its whole schedule in them. Both are
measured as by `bert-jax evaluate --model`, with the same masks in the same held-out text, at the length that
they were trained with. It takes a quarter of an hour on two cores; nothing else should run.

    python benchmarks/quickstart.py > quickstart.json
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bert_jax.formats.open_model import open_model
from bert_jax.studies.heldout_language_model import heldout_language_model
from experiments import EXPERIMENTS

TODAY, PUBLISHED = "quickstart", "quickstart_bert"


def main() -> None:
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as directory:
        result = measure(Path(directory), args.turns, args.steps)
    print(json.dumps(result, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="short runs of each, to measure a step")
    parser.add_argument("--steps", type=int, default=300, help="steps of a short run")
    return parser.parse_args()


def measure(directory: Path, turns: int, steps: int) -> dict[str, Any]:
    """Seconds a step and, at the end of the run, held-out metrics of both; their ratios."""
    pretrain(PUBLISHED, directory / "corpus", "--num-train-steps", "2")
    corpus = ("--data.corpus", str(directory / "corpus" / "corpus"))
    taken: dict[str, list[float]] = {TODAY: [], PUBLISHED: []}
    for turn in range(turns):
        for name in taken:
            rows = pretrain(name, directory / f"{name}-{turn}", *corpus, "--num-train-steps", str(steps))
            taken[name].append(seconds_a_step(rows))
    milliseconds = {name: 1e3 * statistics.median(seconds) for name, seconds in taken.items()}
    whole = EXPERIMENTS[PUBLISHED].num_train_steps
    steps_of = {PUBLISHED: whole, TODAY: int(whole * milliseconds[PUBLISHED] / milliseconds[TODAY])}
    rows_of = {
        name: pretrain(name, directory / name, *corpus, "--num-train-steps", str(count))
        for name, count in steps_of.items()
    }
    result: dict[str, Any] = {}
    for name, count in steps_of.items():
        length = EXPERIMENTS[name].data.phases[0].max_seq_length
        model = open_model(directory / name)
        metrics = heldout_language_model(model, corpus[1], max_seq_length=length).metrics
        result[name] = {
            "steps": count,
            "milliseconds_a_step": round(milliseconds[name], 1),
            "training_seconds": round(count * seconds_a_step(rows_of[name]), 1),
            "mlm_accuracy": round(metrics["mlm_accuracy"], 4),
            "mlm_perplexity": round(metrics["mlm_perplexity"], 2),
        }
    for metric in ("training_seconds", "mlm_accuracy", "mlm_perplexity"):
        result[f"{metric}_ratio"] = round(result[TODAY][metric] / result[PUBLISHED][metric], 3)
    return result


def pretrain(experiment: str, workdir: Path, *flags: str) -> list[dict[str, Any]]:
    """Runs an experiment, and returns the rows of its metrics."""
    command = ["bert-jax", "pretrain", experiment, "--workdir", str(workdir), *flags]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def seconds_a_step(rows: list[dict[str, Any]]) -> float:
    """The mean over a run's rows of training but the first, in which the program was compiled."""
    training = [row for row in rows if row["split"] == "train"]
    seconds = sum(row["timing"]["seconds"] for row in training[1:])
    return float(seconds / (training[-1]["step"] - training[0]["step"]))


if __name__ == "__main__":
    main()
