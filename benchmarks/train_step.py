"""Sequences a second and peak memory of one training step, beside Hugging Face transformers in PyTorch.

Each side lives in a process of its own and the two take turns, so that a machine whose speed
drifts treats them alike. Where torch or transformers is absent our side runs alone. Both do the
same work: masked LM + next sentence loss, dropout 0.1, gradient clipping, AdamW.

    python benchmarks/train_step.py
    python benchmarks/train_step.py --layers 4 --hidden 256 --heads 4 --batch 32
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

import numpy as np

VOCAB_SIZE = 30522


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


def make_our_step(args: argparse.Namespace) -> tuple[Callable[[], float], str]:
    """A function that does one step and returns the running loss, and the device's name."""
    import jax

    from bert_jax.config import Experiment, ModelConfig, OptimizerConfig, ParallelConfig
    from bert_jax.parallel import make_program
    from bert_jax.pretraining import PretrainingTask
    from data_pipeline.config import DataConfig, Phase

    model = ModelConfig(
        vocab_size=VOCAB_SIZE,
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_heads=args.heads,
        intermediate_size=4 * args.hidden,
        dtype=args.dtype,
    )
    experiment = Experiment(
        model=model,
        data=DataConfig(phases=(Phase(args.length, args.predictions),)),
        optimizer=OptimizerConfig(),
        parallel=ParallelConfig(prng=args.prng),
        global_batch_size=args.batch,
    )
    program = make_program(PretrainingTask(model), experiment, jax.devices()[:1])
    batches = random_batches(args)
    state = program.init()

    def step() -> float:
        nonlocal state
        state = program.train_step(state, program.put(next(batches)), np.float32(1e-4))
        return float(state.sums["mlm_loss"])

    return step, jax.devices()[0].device_kind


def make_transformers_step(args: argparse.Namespace) -> tuple[Callable[[], float], str]:
    """The same step with `transformers.BertForPreTraining` and `torch.optim.AdamW`."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.hidden,
        hidden_act="gelu_pytorch_tanh",
    )
    model = BertForPreTraining(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
    batches = random_batches(args)

    def step() -> float:
        inputs = {k: v.to(device) for k, v in _transformers_inputs(next(batches)).items()}
        with torch.autocast(device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = model(**inputs).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step, torch.cuda.get_device_name() if device == "cuda" else "cpu"


def _transformers_inputs(batch: dict[str, np.ndarray]) -> dict:
    import torch

    labels = np.full(batch["input_ids"].shape, -100, np.int64)
    np.put_along_axis(labels, batch["masked_lm_positions"].astype(np.int64), batch["masked_lm_ids"], axis=1)
    arrays = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"],
    }
    return {name: torch.from_numpy(value.astype(np.int64)) for name, value in arrays.items()}


SIDES = {"bert_jax": make_our_step, "transformers": make_transformers_step}


def run_worker(args: argparse.Namespace) -> None:
    """Warms up, then does `--steps` steps for each line on stdin and answers with a line of JSON."""
    step, device = SIDES[args.worker](args)
    step(), step()
    print(json.dumps({"device": device}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"seconds": seconds, "peak_gib": peak, "loss": loss}), flush=True)


def start_worker(side: str) -> subprocess.Popen:
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", side]
    # Both sides get the huge pages that `bert-jax pretrain` asks glibc for.
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ}
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


def summarise(args: argparse.Namespace, turns: list[dict], device: str) -> dict:
    rates = [args.batch * args.steps / turn["seconds"] for turn in turns]
    return {
        "device": device,
        "sequences_per_second": statistics.median(rates),
        "sequences_per_second_all": rates,
        "peak_gib": turns[-1]["peak_gib"],
    }


def main() -> None:
    args = parse_arguments()
    if args.worker:
        return run_worker(args)
    workers = {side: start_worker(side) for side in available_sides(args)}
    devices = {side: read_answer(worker)["device"] for side, worker in workers.items()}
    turns: dict[str, list[dict]] = {side: [] for side in workers}
    for _ in range(args.repeats):
        for side, worker in workers.items():
            turns[side].append(ask(worker))
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    report: dict = {"settings": vars(args), "machine": platform.platform()}
    report.update({side: summarise(args, turns[side], devices[side]) for side in workers})
    if len(workers) == 2:
        ours, theirs = (report[side] for side in SIDES)
        report["speed_ratio"] = ours["sequences_per_second"] / theirs["sequences_per_second"]
        report["memory_ratio"] = ours["peak_gib"] / theirs["peak_gib"]
    print(json.dumps(report, indent=2))
    return None


if __name__ == "__main__":
    main()
