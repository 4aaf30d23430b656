"""Sequences a second of the input pipeline on one core, beside Hugging Face's masking collator.

    python benchmarks/input_pipeline.py CORPUS

CORPUS is a directory made by `bert-jax prepare`. Ours reads shards, pairs and masks; the collator masks
ready-made rows of ids in memory. Both run in turns on one CPU, in batches of 256 at length 128. Where
transformers is not installed our side is measured alone. Prints JSON.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

BATCH_SIZE, LENGTH, PREDICTIONS = 256, 128, 20
OURS = "bert_jax"
FAR_STEP = 1_000_000
PREFETCHED = 10
"""Batches that are not timed at the start of a turn: ours has some ready from the turn before."""
SETTLING_SECONDS = 0.2
"""Pause after a turn, in which tf.data refills its buffers on the same core."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", help="directory made by `bert-jax prepare`")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the one to run on")
    args = parser.parse_args()
    # Before TensorFlow is imported, so that its thread pools see one core; threads inherit it.
    os.sched_setaffinity(0, {args.cpu})
    print(json.dumps(measure(args.corpus, args.repeats), indent=2))


def measure(corpus: str, repeats: int) -> dict[str, Any]:
    """Runs all sides in turns; rates are sequences a second, medians over the repeats."""
    from bert_jax.workdir.provenance import installed_versions

    sides = {OURS: (make_ours(corpus), 200), **make_collators(corpus)}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for run, _ in sides.values():
        run(20)  # compiles, fills buffers
    for repeat in range(repeats):
        turns = list(sides.items())
        for name, (run, batches) in turns[:: -1 if repeat % 2 else 1]:
            run(PREFETCHED)
            rates[name].append(timed(run, batches))
            time.sleep(SETTLING_SECONDS)
    medians = {name: statistics.median(wall for wall, _ in pairs) for name, pairs in rates.items()}
    cpu_medians = {name: statistics.median(cpu for _, cpu in pairs) for name, pairs in rates.items()}
    peers = [name for name in sides if name != OURS]
    return {
        "batch_size": BATCH_SIZE,
        "length": LENGTH,
        "predictions": PREDICTIONS,
        "sequences_per_second": medians,
        "sequences_per_second_range": {
            name: [min(wall for wall, _ in pairs), max(wall for wall, _ in pairs)]
            for name, pairs in rates.items()
        },
        "sequences_per_cpu_second": cpu_medians,
        "times_the_best_collator": medians[OURS] / max(medians[name] for name in peers) if peers else None,
        "times_the_best_collator_by_cpu": (
            cpu_medians[OURS] / max(cpu_medians[name] for name in peers) if peers else None
        ),
        "seconds_to_first_batch": first_batch_seconds(corpus, repeats),
        "repeats": repeats,
        "machine": {"cpu": cpu_model(), "cores_used": len(os.sched_getaffinity(0))},
        "versions": installed_versions(("bert-jax", "tensorflow", "numpy", "transformers", "torch")),
    }


def timed(run: Callable[[int], None], batches: int) -> tuple[float, float]:
    """Sequences per second of wall time, and per second of CPU time of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(batches)
    sequences = batches * BATCH_SIZE
    return sequences / (time.perf_counter() - wall), sequences / (time.process_time() - cpu)


def make_ours(corpus: str) -> Callable[[int], None]:
    batches = open_ours(corpus, first_step=0)

    def run(count: int) -> None:
        for _ in range(count):
            next(batches)

    return run


def open_ours(corpus: str, first_step: int) -> Iterator[dict[str, Any]]:
    from data_pipeline.config import DataConfig, Phase
    from data_pipeline.pretraining.batches import training_batches

    return training_batches(
        corpus,
        DataConfig(phases=(Phase(LENGTH, PREDICTIONS),)),
        seed=0,
        global_batch_size=BATCH_SIZE,
        num_train_steps=10 * FAR_STEP,
        first_step=first_step,
    )


def make_collators(corpus: str) -> dict[str, tuple[Callable[[int], None], int]]:
    """transformers' collator, returning numpy and returning torch, on full rows that need no padding."""
    try:
        from transformers import BertTokenizer, DataCollatorForLanguageModeling
    except ImportError:
        return {}
    tokenizer = BertTokenizer(vocab=os.path.join(corpus, "tokenizer", "vocab.txt"))
    batch = ready_made_rows(corpus)
    sides: dict[str, tuple[Callable[[int], None], int]] = {}
    for name, tensors in (("collator_numpy", "np"), ("collator_torch", "pt")):
        if tensors == "pt" and importlib.util.find_spec("torch") is None:
            continue
        collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, return_tensors=tensors)

        def run(count: int, collate: Callable[[Any], Any] = collate) -> None:
            for _ in range(count):
                collate(batch)

        sides[name] = (run, 10)
    return sides


def ready_made_rows(corpus: str) -> list[dict[str, list[int]]]:
    """A batch of full rows; their special tokens are marked, so that the collator need not find them."""
    from data_pipeline.corpus.documents import open_corpus

    opened = open_corpus(corpus, "train")
    ids = opened.map_shard(0).tokens[: BATCH_SIZE * (LENGTH - 2)].reshape(BATCH_SIZE, -1).tolist()
    cls_id, sep_id = opened.tokenizer.cls_id, opened.tokenizer.sep_id
    special = [1, *[0] * (LENGTH - 2), 1]
    return [{"input_ids": [cls_id, *row, sep_id], "special_tokens_mask": special} for row in ids]


def first_batch_seconds(corpus: str, repeats: int) -> dict[str, float]:
    """Seconds from nothing open (but modules imported) to the first batch, at step 0 and far into a run;
    medians over the repeats."""
    seconds: dict[int, list[float]] = {0: [], FAR_STEP: []}
    for _ in range(repeats):
        for step, times in seconds.items():
            start = time.perf_counter()
            next(open_ours(corpus, first_step=step))
            times.append(time.perf_counter() - start)
    return {f"step_{step}": statistics.median(times) for step, times in seconds.items()}


def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
