"""One run of one side of `benchmarks/finetune.py`: trains, predicts, prints its metrics as a line of JSON.

    python benchmarks/finetune_worker.py bert_jax cola --model MODEL --data GLUE --learning-rate 5e-5 \
        --batch-size 32 --epochs 3 --seed 0

What one side alone needs is imported when it is needed, so that the other's memory does not count it. jax is
not among that: both sides read the data by a module of the task, which imports it.
"""

import argparse
import functools
import itertools
import json
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert_jax.tasks import find_task
from data_pipeline.tasks.finetuning.batches import evaluation_batches, lengths_up_to, training_batches

Outputs = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclass
class Job:
    """What one run is to learn, in the form that both sides need."""

    model: Path
    task: str
    settings: Any
    data: Any
    learning_rate: float
    batch_size: int
    epochs: float
    seed: int

    @property
    def num_steps(self) -> int:
        return math.ceil(len(self.data.train) * self.epochs / self.batch_size)

    def batches(
        self, first_step: int, lengths: tuple[int, ...], packing: Any = None
    ) -> Iterator[dict[str, np.ndarray]]:
        return training_batches(
            self.data.train,
            batch_size=self.batch_size,
            seed=self.seed,
            first_step=first_step,
            num_steps=self.num_steps,
            lengths=lengths,
            packing=packing,
        )


@dataclass
class Trained:
    """The result of one side's training."""

    seconds: float
    compile_seconds: float
    apply: Callable[[Any], Outputs]
    """Rows -> (row numbers, outputs), as `TaskData.evaluate` takes it."""
    warm_up: Callable[[Any], None]
    """Compiles what `apply` needs for the given rows."""
    positions_per_token: float
    """Positions of the training batches for each real token in them."""


def train_ours(job: Job) -> Trained:
    """The loop, the step and the batches of `bert-jax finetune`."""
    from bert_jax.config import OptimizerConfig
    from bert_jax.finetuning_config import FineTuningConfig, Trial
    from bert_jax.formats.open_model import open_model
    from bert_jax.parallel.interrupt import Interrupt
    from bert_jax.tasks.finetuning.outputs import predict
    from bert_jax.tasks.finetuning.packing import find_packing
    from bert_jax.tasks.finetuning.trials import trial_config
    from bert_jax.training.checkpoints import load_params
    from bert_jax.training.loop import TrainingData, train
    from bert_jax.training.program import make_program
    from bert_jax.training.warm_start import start_from

    lengths = lengths_up_to(job.settings.max_seq_length)
    pretrained = open_model(job.model)
    base = FineTuningConfig(
        model=pretrained.config,
        num_labels=max(len(job.data.labels), 1),
        # Same as the other side: Adam as published, and a decay that begins where warm-up ends.
        optimizer=OptimizerConfig(bias_correction="adam", decay_start="warmup_end"),
    )
    trial = Trial(job.learning_rate, job.batch_size, job.epochs, job.seed)
    config = replace(trial_config(base, trial, len(job.data.train)), checkpoint_every=10**9)
    assert config.num_train_steps == job.num_steps
    head = job.settings.head(job.task, config)
    program = make_program(head, config)
    packing = find_packing(head, job.data.train, lengths)
    began = time.perf_counter()
    for batch in one_of_each_shape(job.batches(0, lengths, packing)):
        state = start_from(program, pretrained.params)
        program.train_step(state, program.put(batch), np.float32(0)).step.block_until_ready()
    compiled = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        train(
            program,
            TrainingData(training=lambda step: job.batches(step, lengths, packing), identity={}),
            Path(directory),
            Interrupt(),
            start=functools.partial(start_from, program, pretrained.params),
        )
        seconds = time.perf_counter() - compiled
        params = program.put_params(load_params(Path(directory))[1])

    def batches_of(rows: Any) -> Iterator[dict[str, np.ndarray]]:
        return evaluation_batches(rows, 2 * job.batch_size, lengths)

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
    has_spans = "start_positions" in job.data.train.targets
    model: Any
    if has_spans:
        model = transformers.BertForQuestionAnswering.from_pretrained(job.model)
    else:
        outputs = max(len(job.data.labels), 1)
        model = transformers.BertForSequenceClassification.from_pretrained(job.model, num_labels=outputs)
    decayed = [p for n, p in model.named_parameters() if not n.endswith("bias") and "LayerNorm" not in n]
    others = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=job.learning_rate,
        eps=1e-6,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(0.1 * job.num_steps), job.num_steps
    )
    model.train()
    every_length = tuple(range(1, job.settings.max_seq_length + 1))
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
        for numbers, batch in in_file_order(rows, 2 * job.batch_size):
            with torch.inference_mode():
                answer = model(**torch_inputs(batch))
            if has_spans:
                yield numbers, torch.stack([answer.start_logits, answer.end_logits], -1).numpy()
            else:
                yield numbers, answer.logits.numpy()

    def warm_up(rows: Any) -> None:
        for _numbers, batch in itertools.islice(in_file_order(rows, job.batch_size), 3):
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
    """Reads the task's data."""
    settings: Any = find_task(args.task).settings()
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    data = settings.load(args.task, args.data, tokenizer)
    if args.train_rows:
        data.train = first_rows(data.train, args.train_rows)
    return Job(
        model=args.model,
        task=args.task,
        settings=settings,
        data=data,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        epochs=args.epochs,
        seed=args.seed,
    )


def first_rows(rows: Any, count: int) -> Any:
    return replace(
        rows,
        tokens={name: values[: count * rows.sequences_per_row] for name, values in rows.tokens.items()},
        targets={name: values[:count] for name, values in rows.targets.items()},
        example=rows.example[:count],
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("side", choices=tuple(SIDES))
    parser.add_argument("task", help="as `bert-jax finetune` calls it")
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face directory of a BERT encoder")
    parser.add_argument("--data", required=True, help="directory with the task's files")
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--epochs", type=float, required=True)
    parser.add_argument("--train-rows", type=int, help="the first so many; all if left out")
    parser.add_argument("--seed", type=int, required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    job = make_job(args)
    trained = SIDES[args.side](job)
    passes: list[tuple[int, float]] = []

    def timed(rows: Any) -> Outputs:
        trained.warm_up(rows)
        began = time.perf_counter()
        parts = list(trained.apply(rows))
        passes.append((len(rows), time.perf_counter() - began))
        return iter(parts)

    metrics = job.data.evaluate(timed)
    result = {
        "metric": job.data.metrics[0].name,
        "metrics": metrics,
        "steps": job.num_steps,
        "train_seconds": trained.seconds,
        "compile_seconds": trained.compile_seconds,
        "train_rows_per_second": job.num_steps * job.batch_size / trained.seconds,
        "train_positions_per_token": trained.positions_per_token,
        "predict_rows_per_second": sum(n for n, _ in passes) / sum(s for _, s in passes),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
