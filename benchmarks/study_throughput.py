"""Runs finished in an hour by a study with two workers, beside two independent processes with the same runs.

The independent processes do what the workers do, each on its own core for every other seed, without leases,
reports or logs. The sides take turns. Corpus and tasks are made before. Memory is the highest sum of the
proportional set sizes of a side's processes.

    python benchmarks/study_throughput.py > study_throughput.json
"""

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.objectives import objective_name
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.run import pretrain
from bert_jax.studies.measuring import measure
from bert_jax.studies.plan import Plan, PretrainingJob, make_plan
from bert_jax.workdir.directory import keep_compiled
from data_pipeline.corpus.store import describe
from experiments import STUDIES

SCALE = "smoke"
WORKERS = 2
SIDES = ("study", "processes")
SECONDS_BETWEEN_SAMPLES = 0.5
# As the command `bert-jax study` sets for itself.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ}


def main() -> None:
    args = parse_arguments()
    if args.part is not None:
        do_part(args)
        return
    with tempfile.TemporaryDirectory() as directory:
        args.data = Path(directory) / "data"
        result = compare(args, Path(directory))
    print(json.dumps(result, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="how often each side does all runs")
    parser.add_argument("--steps", type=int, default=1200, help="of a pretraining, a multiple of 300")
    parser.add_argument("--seeds", type=int, default=WORKERS, help=f"a multiple of {WORKERS}")
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Medians over turns of both sides, and the ratio of their rates."""
    makes_data = ["bert-jax", "study", SCALE, "--output", str(args.data), "--plan"]
    subprocess.run(makes_data, stdout=subprocess.DEVNULL, check=True)
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for turn in range(args.turns):
        for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
            output = directory / f"{side}-{turn}"
            if side == "study":
                commands = [study_command(args, output)]
            else:
                flags = [f"--{name}={getattr(args, name)}" for name in ("steps", "seeds", "data")]
                own = [sys.executable, __file__, *flags, f"--output={output}"]
                commands = [[*own, f"--part={part}"] for part in range(WORKERS)]
            found[side].append(run(commands, len(plan_of(args).jobs)))
    medians = {
        side: {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
        for side, turns in found.items()
    }
    rates = [medians[side]["runs_an_hour"] for side in SIDES]
    return {**medians, "ratio": round(rates[0] / rates[1], 3), "turns": found}


def plan_of(args: argparse.Namespace) -> Plan:
    """What both sides do."""
    study, corpus = STUDIES[SCALE], describe(str(args.data / "corpus"))
    scale = dataclasses.replace(study.scales[SCALE], seeds=args.seeds)
    changes = {
        "data.corpus": corpus.path,
        "model.vocab_size": corpus.vocabulary_size,
        "num_train_steps": args.steps,
    }
    return make_plan(study, SCALE, scale, changes)


def study_command(args: argparse.Namespace, output: Path) -> list[str]:
    data = [f"--{name}={args.data / name}" for name in ("corpus", "tasks")]
    amount = [f"--workers={WORKERS}", f"--seeds={args.seeds}", f"--num-train-steps={args.steps}"]
    return ["bert-jax", "study", SCALE, f"--output={output}", *data, *amount]


def do_part(args: argparse.Namespace) -> None:
    """Does every other seed's runs in this process, on one core."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[args.part]})
    keep_compiled(args.output)
    for job in plan_of(args).jobs:
        experiment = (job if isinstance(job, PretrainingJob) else job.model).experiment
        if experiment.seed % WORKERS != args.part:
            continue
        if isinstance(job, PretrainingJob):
            name, workdir = str(job.path), args.output / job.path
            pretrain(Pretrain(name, workdir, objective_name(experiment.objective), experiment))
        else:
            measure(job, args.output, str(args.data / "tasks"))


def run(commands: Sequence[Sequence[str]], num_jobs: int) -> dict[str, float]:
    """Runs commands side by side; returns jobs an hour, and the memory that all processes take at most.

    Where there are several commands, each has its share of the jobs, and the rates are added.
    """
    began, seconds = time.monotonic(), []
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, env=ENVIRONMENT)
        for command in commands
    ]
    with sampled_memory({process.pid for process in started}) as samples:
        left = list(started)
        while left:
            for process in [process for process in left if process.poll() is not None]:
                left.remove(process)
                seconds.append(time.monotonic() - began)
                if process.returncode:
                    raise SystemExit(f"a process ended with status {process.returncode}")
            time.sleep(0.05)
    rate = sum(num_jobs / len(commands) / taken * 3600 for taken in seconds)
    return {"runs_an_hour": round(rate, 1), "seconds": round(max(seconds), 1), "peak_gib": max(samples)}


@contextlib.contextmanager
def sampled_memory(sessions: set[int]) -> Iterator[list[float]]:
    """Inside the block a list of GiB grows: those of all processes of some sessions."""
    samples, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(SECONDS_BETWEEN_SAMPLES):
            samples.append(round(sum(map(gib_of, Path("/proc").glob("[0-9]*"))), 2))

    def gib_of(process: Path) -> float:
        with contextlib.suppress(OSError, IndexError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[3]) in sessions:
                lines = (process / "smaps_rollup").read_text().splitlines()
                return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 2**20
        return 0.0

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()


if __name__ == "__main__":
    main()
