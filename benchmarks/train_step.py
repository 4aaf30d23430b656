"""Sequences a second and peak memory of one training step, beside Hugging Face transformers in PyTorch.

Each side lives in a process of its own and the two take turns, so that a machine whose speed
drifts treats them alike. Where torch or transformers is absent our side runs alone. Both do the
same work: masked LM + next sentence loss, dropout 0.1, gradient clipping, AdamW. On a GPU the model of
transformers is compiled by torch.compile. Its attention is PyTorch's own choice of kernel (sdpa) unless
--attention names another; all rows are full, so it is given no mask, which would keep PyTorch from its
fastest kernel. The report names the device; where jax and torch see a GPU the same commands measure the GPU.
Speeds are also given as a fraction of what large matrix products reach on the same device in the same run.

    python benchmarks/train_step.py
    python benchmarks/train_step.py --layers 4 --hidden 256 --heads 4 --batch 32
    python benchmarks/train_step.py --dtype bfloat16 --batch 256 --steps 20
    python benchmarks/train_step.py --dtype bfloat16 --layers 24 --hidden 1024 --heads 16 --batch 64 \
        --length 512 --predictions 77 --steps 10
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax.model_config import ModelConfig

VOCAB_SIZE = 30522
ATTENTION = ("sdpa", "eager", "flash_attention_2")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--length", type=int, default=128, help="tokens a sequence")
    parser.add_argument("--predictions", type=int, default=20, help="predicted tokens a sequence")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prng", choices=("rbg", "threefry2x32"), default="rbg")
    parser.add_argument("--attention", choices=ATTENTION, default="sdpa", help="that of transformers")
    parser.add_argument("--steps", type=int, default=4, help="steps a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--only", choices=tuple(SIDES), help="run one side alone")
    parser.add_argument("--worker", choices=tuple(SIDES), help=argparse.SUPPRESS)
    return parser.parse_args()


def random_batches(args: argparse.Namespace) -> Iterator[dict[str, np.ndarray]]:
    """Batches of full-length random pairs in the seven-key contract, without end."""
    rng = np.random.default_rng(0)
    rows, length, slots = args.batch, args.length, args.predictions
    while True:
        positions = rng.permuted(np.tile(np.arange(1, length - 1), (rows, 1)), axis=1)[:, :slots]
        segment_ids = np.tile(np.arange(length) >= length // 2, (rows, 1))
        yield {
            "input_ids": rng.integers(1000, VOCAB_SIZE, (rows, length), dtype=np.int32),
            "input_mask": np.ones((rows, length), np.int32),
            "segment_ids": segment_ids.astype(np.int32),
            "masked_lm_positions": np.sort(positions, axis=1).astype(np.int32),
            "masked_lm_ids": rng.integers(1000, VOCAB_SIZE, (rows, slots), dtype=np.int32),
            "masked_lm_weights": np.ones((rows, slots), np.float32),
            "next_sentence_labels": rng.integers(0, 2, rows, dtype=np.int32),
        }


@dataclass
class Side:
    """One side's step, ready to be timed."""

    step: Callable[[], None]
    """Starts one more step, which may run in the background."""
    loss: Callable[[], float]
    """Waits for all steps and returns a loss."""
    device: str
    platform: str
    """cpu, gpu or tpu."""
    peak_bytes: Callable[[], int]
    """Most memory taken so far, of the process or, on an accelerator, of the device."""


def make_ours(args: argparse.Namespace) -> Side:
    """`bert-jax pretrain`'s step, on one device."""
    import jax

    from bert_jax.config import ParallelConfig
    from bert_jax.objectives.experiment import Experiment
    from bert_jax.objectives.task import PretrainingTask
    from bert_jax.training.program import make_program
    from data_pipeline.config import DataConfig, Phase

    model = model_config(args)
    experiment = Experiment(
        model=model,
        data=DataConfig(phases=(Phase(args.length, args.predictions),)),
        parallel=ParallelConfig(prng=args.prng),
        global_batch_size=args.batch,
    )
    device = jax.devices()[0]
    program = make_program(PretrainingTask(experiment.objective, model), experiment, [device])
    batches = random_batches(args)
    state = program.init()

    def step() -> None:
        nonlocal state
        state = program.train_step(state, program.put(next(batches)), np.float32(1e-4))

    def peak_bytes() -> int:
        stats = device.memory_stats()
        return stats["peak_bytes_in_use"] if stats else peak_of_process()

    return Side(step, lambda: float(state.sums["mlm_loss"]), device.device_kind, device.platform, peak_bytes)


def model_config(args: argparse.Namespace) -> ModelConfig:
    """The model that both sides train."""
    return ModelConfig(
        vocab_size=VOCAB_SIZE,
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_heads=args.heads,
        intermediate_size=4 * args.hidden,
        dtype=args.dtype,
    )


def make_theirs(args: argparse.Namespace) -> Side:
    """The same step with `transformers.BertForPreTraining` and `torch.optim.AdamW`."""
    import torch
    from transformers import AutoModelForPreTraining, BertConfig

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.hidden,
        hidden_act="gelu_pytorch_tanh",
    )
    model: Any = AutoModelForPreTraining.from_config(config, attn_implementation=args.attention)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
    batches = random_batches(args)
    loss = torch.zeros(())
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        model.compile()

    def step() -> None:
        nonlocal loss
        inputs = {k: v.to(device) for k, v in _transformers_inputs(next(batches)).items()}
        with torch.autocast(device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = model(**inputs).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    here: tuple[str, str, Callable[[], int]] = ("cpu", "cpu", peak_of_process)
    if device == "cuda":
        here = (torch.cuda.get_device_name(), "gpu", torch.cuda.max_memory_allocated)
    return Side(step, lambda: float(loss.detach()), *here)


def peak_of_process() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10


def _transformers_inputs(batch: dict[str, np.ndarray]) -> dict:
    import torch

    labels = np.full(batch["input_ids"].shape, -100, np.int64)
    np.put_along_axis(labels, batch["masked_lm_positions"].astype(np.int64), batch["masked_lm_ids"], axis=1)
    arrays = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"],
    }
    return {name: torch.from_numpy(value.astype(np.int64)) for name, value in arrays.items()}


SIDES = {"bert_jax": make_ours, "transformers": make_theirs}


def run_worker(args: argparse.Namespace) -> None:
    """Warms up, then does `--steps` steps for each line on stdin and answers with a line of JSON.

    The first step of a turn is not timed: memory that a virtual machine gave back while the other side ran
    comes back in it.
    """
    side = SIDES[args.worker](args)
    side.step()
    side.step()
    side.loss()
    print(json.dumps({"device": side.device, "platform": side.platform}), flush=True)
    for _ in sys.stdin:
        side.step()
        side.loss()
        start = time.perf_counter()
        for _ in range(args.steps):
            side.step()
        loss = side.loss()
        turn = {"seconds": time.perf_counter() - start, "peak_gib": side.peak_bytes() / 2**30, "loss": loss}
        if args.worker == "bert_jax":
            turn["matmul_flops_per_second"] = matmul_flops_per_second(args.dtype)
        print(json.dumps(turn), flush=True)


def flops_per_sequence(args: argparse.Namespace) -> int:
    from bert_jax.objectives import MaskedLMAndNSP

    return MaskedLMAndNSP().flops(model_config(args), args.length, args.predictions, 1)


def matmul_flops_per_second(dtype: str) -> float:
    """FLOP/s that products of large square matrices reach on the device, the best of five."""
    import jax
    import jax.numpy as jnp

    size = 2048 if jax.default_backend() == "cpu" else 8192
    multiply = jax.jit(jnp.matmul)
    x = jnp.ones((size, size), dtype)
    multiply(x, x).block_until_ready()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        multiply(x, x).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def start_worker(side: str) -> subprocess.Popen:
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", side]
    # Both sides get the huge pages that `bert-jax pretrain` asks glibc for.
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ}
    # Both sides share a GPU's memory, most of which jax would otherwise take at once.
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def ask(worker: subprocess.Popen) -> dict:
    """One turn of a worker."""
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return read_answer(worker)


def read_answer(worker: subprocess.Popen) -> dict:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        sys.exit(f"a worker ended early with status {worker.wait()}")
    return json.loads(line)


def available_sides(args: argparse.Namespace) -> list[str]:
    if args.only:
        return [args.only]
    has_peer = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return list(SIDES) if has_peer else ["bert_jax"]


def check_same_platform(platforms: dict[str, str]) -> None:
    """Ends the program where one side would be measured on a CPU and the other on a GPU."""
    if len(set(platforms.values())) > 1:
        found = ", ".join(f"{side} found a {name}" for side, name in platforms.items())
        print(
            f"train_step.py: error: {found}; install jax and torch for the same, or pass --only SIDE",
            file=sys.stderr,
        )
        sys.exit(2)


def measure(
    workers: dict[str, subprocess.Popen], repeats: int
) -> tuple[dict[str, dict], dict[str, list[dict]]]:
    """Where each side runs, and the turns of each, which they take one after the other."""
    places = {side: read_answer(worker) for side, worker in workers.items()}
    check_same_platform({side: place["platform"] for side, place in places.items()})
    turns: dict[str, list[dict]] = {side: [] for side in workers}
    for repeat in range(repeats):
        for side, worker in list(workers.items())[:: -1 if repeat % 2 else 1]:
            turns[side].append(ask(worker))
    return places, turns


def summarise(args: argparse.Namespace, turns: list[dict], device: str) -> dict:
    rates = [args.batch * args.steps / turn["seconds"] for turn in turns]
    return {
        "device": device,
        "sequences_per_second": statistics.median(rates),
        "sequences_per_second_all": rates,
        "peak_gib": turns[0]["peak_gib"],  # later ones include the product that measures the device
    }


def main() -> None:
    args = parse_arguments()
    if args.worker:
        return run_worker(args)
    workers = {side: start_worker(side) for side in available_sides(args)}
    try:
        places, turns = measure(workers, args.repeats)
    finally:
        for worker in workers.values():  # one may have failed while the other still compiles
            worker.kill()
    report: dict = {"settings": vars(args), "machine": platform.platform()}
    if all(place["platform"] == "cpu" for place in places.values()):
        report["note"] = "measured on a CPU; where jax and torch see a GPU, the same command measures the GPU"
    report.update({side: summarise(args, turns[side], places[side]["device"]) for side in workers})
    if "bert_jax" in workers:
        ceiling = max(turn["matmul_flops_per_second"] for turn in turns["bert_jax"])
        report["matmul_flops_per_second"] = ceiling
        for side in workers:
            flops = report[side]["sequences_per_second"] * flops_per_sequence(args)
            report[side]["share_of_matmul"] = flops / ceiling
    if len(workers) == 2:
        ours, theirs = (report[side] for side in SIDES)
        report["speed_ratio"] = ours["sequences_per_second"] / theirs["sequences_per_second"]
        report["memory_ratio"] = ours["peak_gib"] / theirs["peak_gib"]
    print(json.dumps(report, indent=2))
    return None


if __name__ == "__main__":
    main()
