"""Which part of a study's time its workers spend on steps, evaluation and compiling.

The rest is what a study adds: processes that start, data and checkpoints that are read and written, reports,
and waiting for other workers. All is read from what runs record. Corpus and tasks are made before the clock
starts. The study `smoke` takes several minutes on two cores; nothing else should run.

    python benchmarks/study_overhead.py > study_overhead.json
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.studies.directory import JOB_FILE
from bert_jax.training.metric_log import METRICS_FILE, read_rows


def main() -> None:
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as directory:
        result = measure(Path(directory) / "study", args.workers, args.flags)
    print(json.dumps(result, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="workers side by side, one on each core")
    parser.add_argument("flags", nargs="*", help="further flags of the study, after --")
    return parser.parse_args()


def measure(directory: Path, workers: int, flags: Sequence[str]) -> dict[str, Any]:
    """Runs the study; returns the seconds of all workers together, by what they were spent on."""
    command = ["bert-jax", "study", "smoke", "--output", str(directory), "--workers", str(workers), *flags]
    subprocess.run([*command, "--plan"], stdout=subprocess.DEVNULL, check=True)  # makes the data
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall = time.monotonic() - began
    jobs = {path.parent: json.loads(path.read_text()) for path in directory.rglob(JOB_FILE)}
    spent: Counter[str] = Counter()
    for job, ended in jobs.items():
        spent.update(seconds_of(job, ended))
    available = wall * workers
    in_jobs = sum(ended["seconds"] for ended in jobs.values())
    return {
        "wall_seconds": round(wall, 1),
        "workers": workers,
        "jobs": len(jobs),
        "fraction": round(sum(spent.values()) / available, 3),
        "fraction_by_kind": {name: round(seconds / available, 3) for name, seconds in spent.items()},
        "fraction_of_jobs": round(in_jobs / available, 3),
    }


def seconds_of(job: Path, ended: dict[str, Any]) -> Counter[str]:
    """What a job's seconds were spent on; a measure that trains nothing evaluates all the time."""
    files = [*job.rglob(METRICS_FILE)]
    if not files:
        return Counter(evaluation=ended["seconds"])
    spent: Counter[str] = Counter()
    for file in files:
        for row in read_rows(file):
            timing = row["timing"]
            if row["split"] == "train":
                spent["steps"] += timing["seconds"] - timing.get("seconds_saving", 0.0)
                spent["compiling"] += timing.get("seconds_compiling", 0.0)
            else:
                spent["evaluation"] += timing["seconds"]
    return spent


if __name__ == "__main__":
    main()
