"""Quality, speed and memory of fine-tuning, beside Hugging Face transformers in PyTorch.

Both sides start from the same weights, see the same token ids in the same order, and have the same
optimizer, schedule, dropout and number of seeds; their answers are scored by the same code. transformers pads
each batch to its longest sequence and predicts in the order of the file, as its Trainer does. Every run is
a process of its own, the sides take turns, and a finished run is kept in OUTPUT/runs.jsonl: the same
command goes on where it stopped.

    python benchmarks/finetune.py --model MODEL --glue GLUE --squad SQUAD --output OUTPUT
"""

import argparse
import functools
import itertools
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

Outputs = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Recipe:
    """How a task is trained, by both sides."""

    learning_rate: float = 5e-5
    batch_size: int = 32
    epochs: float = 3.0
    train_rows: int | None = None
    """The first so many; None for all."""


RECIPES = {
    "cola": Recipe(),
    "stsb": Recipe(),
    "sst2": Recipe(train_rows=10_000),
    "squad": Recipe(batch_size=16, epochs=2.0),
}


@dataclass
class Job:
    """One run of one side: what is to be learnt, in the form that both sides need."""

    model: Path
    recipe: Recipe
    seed: int
    data: Any
    max_seq_length: int

    @property
    def num_steps(self) -> int:
        return math.ceil(len(self.data.train) * self.recipe.epochs / self.recipe.batch_size)

    def batches(
        self, first_step: int, lengths: tuple[int, ...], packing: Any = None
    ) -> Iterator[dict[str, np.ndarray]]:
        from data_pipeline.tasks.batches import training_batches

        return training_batches(
            self.data.train,
            batch_size=self.recipe.batch_size,
            seed=self.seed,
            first_step=first_step,
            num_steps=self.num_steps,
            lengths=lengths,
            packing=packing,
        )


@dataclass
class Trained:
    """What a side's training came to."""

    seconds: float
    compile_seconds: float
    apply: Callable[[Any], Outputs]
    """Rows -> (row numbers, outputs), as `TaskData.evaluate` takes it."""
    warm_up: Callable[[Any], None]
    """Compiles what `apply` will need for some rows."""
    positions_per_token: float
    """Positions of the training batches for each real token in them."""


def train_ours(job: Job) -> Trained:
    """The loop, the step and the batches of `bert-jax finetune`."""
    from bert_jax.checkpoints import load_params
    from bert_jax.cli.finetuning.grid import find_packing
    from bert_jax.config import OptimizerConfig
    from bert_jax.finetuning.config import Cell, FineTuning, make_task
    from bert_jax.finetuning.predict import predict
    from bert_jax.finetuning.run import cell_config
    from bert_jax.interrupt import Interrupt
    from bert_jax.loop import Data, train
    from bert_jax.open_model import open_model
    from bert_jax.parallel import make_program
    from bert_jax.start import start_from
    from data_pipeline.tasks.batches import evaluation_batches, lengths_up_to

    lengths = lengths_up_to(job.max_seq_length)
    pretrained = open_model(job.model)
    base = FineTuning(
        kind=job.data.kind,
        model=pretrained.config,
        num_labels=max(len(job.data.labels), 1),
        # As the other side: Adam as published, and a decay that begins where warm-up ends.
        optimizer=OptimizerConfig(bias_correction="adam", decay_start="warmup_end"),
    )
    cell = Cell(job.recipe.learning_rate, job.recipe.batch_size, job.recipe.epochs, job.seed)
    config = replace(cell_config(base, cell, len(job.data.train)), checkpoint_every=10**9)
    assert config.num_train_steps == job.num_steps
    program = make_program(make_task(config), config)
    packing = find_packing(config, job.data.train, lengths, config.num_train_steps)
    began = time.perf_counter()
    for batch in one_of_each_shape(job.batches(0, lengths, packing)):
        state = start_from(program, pretrained.params)
        program.train_step(state, program.put(batch), np.float32(0)).step.block_until_ready()
    compiled = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(
            program,
            Data(training=lambda step: job.batches(step, lengths, packing), identity={}),
            None,
            Path(folder),
            interrupt=Interrupt(),
            say=lambda line: None,
            start=functools.partial(start_from, program, pretrained.params),
        )
        seconds = time.perf_counter() - compiled
        params = program.put_params(load_params(Path(folder))[1])

    def batches_of(rows: Any) -> Iterator[dict[str, np.ndarray]]:
        return evaluation_batches(rows, 2 * job.recipe.batch_size, lengths)

    def apply(rows: Any) -> Outputs:
        return predict(program, params, batches_of(rows))

    def warm_up(rows: Any) -> None:
        for _ in predict(program, params, one_of_each_shape(batches_of(rows))):
            pass

    return Trained(
        seconds, compiled - began, apply, warm_up, positions_per_token(job.batches(0, lengths, packing))
    )


def train_theirs(job: Job) -> Trained:
    """A plain PyTorch loop over transformers' own task class."""
    import torch
    import transformers

    torch.manual_seed(job.seed)
    if job.data.kind == "spans":
        model = transformers.BertForQuestionAnswering.from_pretrained(job.model)
    else:
        outputs = 1 if job.data.kind == "regression" else len(job.data.labels)
        model = transformers.BertForSequenceClassification.from_pretrained(job.model, num_labels=outputs)
    decayed = [p for n, p in model.named_parameters() if not n.endswith("bias") and "LayerNorm" not in n]
    others = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=job.recipe.learning_rate,
        eps=1e-6,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(0.1 * job.num_steps), job.num_steps
    )
    model.train()
    every_length = tuple(range(1, job.max_seq_length + 1))
    began = time.perf_counter()
    for batch in job.batches(0, every_length):
        loss = model(**torch_inputs(batch), **torch_targets(batch)).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - began
    model.eval()

    def apply(rows: Any) -> Outputs:
        for numbers, batch in in_file_order(rows, 2 * job.recipe.batch_size):
            with torch.inference_mode():
                answer = model(**torch_inputs(batch))
            if job.data.kind == "spans":
                yield numbers, torch.stack([answer.start_logits, answer.end_logits], -1).numpy()
            else:
                yield numbers, answer.logits.numpy()

    def warm_up(rows: Any) -> None:
        for _numbers, batch in itertools.islice(in_file_order(rows, job.recipe.batch_size), 3):
            with torch.inference_mode():
                model(**torch_inputs(batch))

    return Trained(seconds, 0.0, apply, warm_up, positions_per_token(job.batches(0, every_length)))


SIDES = {"bert_jax": train_ours, "transformers": train_theirs}


def one_of_each_shape(batches: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    seen: set[tuple[int, ...]] = set()
    for batch in batches:
        shape = batch["input_ids"].shape
        if shape not in seen:
            seen.add(shape)
            yield batch


def positions_per_token(batches: Iterator[dict[str, np.ndarray]]) -> float:
    counts = [(batch["input_mask"].size, int(batch["input_mask"].sum())) for batch in batches]
    positions, tokens = map(sum, zip(*counts, strict=True))
    return positions / tokens


def in_file_order(rows: Any, size: int) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Row numbers and their inputs, padded to the longest of the batch."""
    for first in range(0, len(rows), size):
        numbers = np.arange(first, min(first + size, len(rows)), dtype=np.int32)
        ids = [rows.tokens["input_ids"][n] for n in numbers]
        shape = (len(ids), max(map(len, ids)))
        batch = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
        for i, n in enumerate(numbers):
            batch["input_ids"][i, : len(ids[i])] = ids[i]
            batch["input_mask"][i, : len(ids[i])] = 1
            batch["segment_ids"][i, : len(ids[i])] = rows.tokens["segment_ids"][n]
        yield numbers, batch


def torch_inputs(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    return torch_tensors({theirs: batch[ours] for theirs, ours in names.items()})


def torch_targets(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    if "start_positions" in batch:
        return torch_tensors({name: batch[name] for name in ("start_positions", "end_positions")})
    return torch_tensors({"labels": batch["labels"] if "labels" in batch else batch["values"]})


def torch_tensors(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {name: x if x.is_floating_point() else x.long() for name, x in tensors.items()}


def make_job(args: argparse.Namespace) -> Job:
    """Reads the data; imports neither jax nor torch, so that each side's memory is its own."""
    from tokenizers import Tokenizer

    from bert_jax.cli.finetuning import TASKS

    recipe = make_recipe(args, args.task)
    settings: Any = TASKS[args.task].settings
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    data = settings.load(args.task, str(args.squad if args.task == "squad" else args.glue), tokenizer)
    if recipe.train_rows:
        data.train = first_rows(data.train, recipe.train_rows)
    return Job(args.model, recipe, args.seed, data, settings.max_seq_length)


def make_recipe(args: argparse.Namespace, task: str) -> Recipe:
    changes = {"train_rows": args.train_rows, "epochs": args.epochs}
    return replace(RECIPES[task], **{name: value for name, value in changes.items() if value is not None})


def first_rows(rows: Any, count: int) -> Any:
    return replace(
        rows,
        tokens={name: values[: count * rows.sequences_per_row] for name, values in rows.tokens.items()},
        targets={name: values[:count] for name, values in rows.targets.items()},
        example=rows.example[:count],
    )


def run_worker(args: argparse.Namespace) -> None:
    """One run; its figures are one line of JSON on stdout."""
    job = make_job(args)
    trained = SIDES[args.worker](job)
    passes: list[tuple[int, float]] = []

    def timed(rows: Any) -> Outputs:
        trained.warm_up(rows)
        began = time.perf_counter()
        parts = list(trained.apply(rows))
        passes.append((len(rows), time.perf_counter() - began))
        return iter(parts)

    figures = job.data.evaluate(timed)
    result = {
        "metric": job.data.metric,
        "figures": figures,
        "steps": job.num_steps,
        "train_seconds": trained.seconds,
        "compile_seconds": trained.compile_seconds,
        "train_rows_per_second": job.num_steps * job.recipe.batch_size / trained.seconds,
        "train_positions_per_token": trained.positions_per_token,
        "predict_rows_per_second": sum(n for n, _ in passes) / sum(s for _, s in passes),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    print(json.dumps(result), flush=True)


def run_job(args: argparse.Namespace, task: str, side: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, *sys.argv[1:]]
    command += ["--worker", side, "--task", task, "--seed", str(seed)]
    # Both sides get the huge pages that `bert-jax finetune` asks glibc for.
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ}
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if answer.returncode:
        sys.exit(f"{task}, {side}, seed {seed}: ended with status {answer.returncode}")
    key = {"task": task, "side": side, "seed": seed, "recipe": asdict(make_recipe(args, task))}
    return key | json.loads(answer.stdout.splitlines()[-1])


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one side's runs of one task."""
    metric = runs[0]["metric"]
    scores = [run["figures"][metric] for run in runs]
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
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder of a BERT encoder")
    parser.add_argument("--glue", type=Path, help="folder with CoLA, STS-B, SST-2")
    parser.add_argument("--squad", type=Path, help="folder with train-v1.1*.json and dev-v1.1.json")
    parser.add_argument("--output", type=Path, required=True, help="folder that keeps finished runs")
    parser.add_argument("--tasks", nargs="+", choices=tuple(RECIPES), default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--train-rows", type=int, help="train on the first so many rows only")
    parser.add_argument("--epochs", type=float)
    for hidden in ("--worker", "--task"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.worker:
        return run_worker(args)
    args.output.mkdir(parents=True, exist_ok=True)
    file = args.output / "runs.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    runs = [run for run in map(json.loads, lines) if run["recipe"] == asdict(make_recipe(args, run["task"]))]
    done = {(run["task"], run["side"], run["seed"]) for run in runs}
    for task in args.tasks:
        for seed in range(args.seeds):
            for side in SIDES:
                if (task, side, seed) not in done:
                    runs.append(run_job(args, task, side, seed))
                    with file.open("a", encoding="utf-8") as kept:
                        kept.write(json.dumps(runs[-1]) + "\n")
    print(json.dumps(report(args, runs), indent=2))
    return None


if __name__ == "__main__":
    main()
