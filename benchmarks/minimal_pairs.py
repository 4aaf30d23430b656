"""Speed of scoring minimal pairs: pairs of two sentences a second, for each way of scoring.

The first call compiles; of the others, the median and the fastest are given. On a
machine that does other things too, pairs for each second of a core's time tell more than pairs a second.

    python benchmarks/minimal_pairs.py --model MODEL --data PAIRS
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import jax

from bert_jax.formats.open_model import open_model
from bert_jax.inference.sentence_scores import default_scoring, sentence_scores
from bert_jax.names import SentenceScoring
from data_pipeline.tasks.minimal_pairs import read_minimal_pairs


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="any model that bert-jax opens")
    parser.add_argument("--data", type=Path, required=True, help="as of `bert-jax minimal-pairs`")
    parser.add_argument("--pairs", type=int, default=2000, help="evenly spaced over all; all if fewer")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    model = open_model(args.model)
    pairs = read_minimal_pairs(args.data)
    count = min(args.pairs, len(pairs))
    chosen = [pairs[number * len(pairs) // count] for number in range(count)]
    sentences = [sentence for pair in chosen for sentence in (pair.good, pair.bad)]
    scorings: tuple[SentenceScoring, ...] = ("pll", "pll_word_l2r")
    if default_scoring(model) == "likelihood":
        scorings = ("likelihood",)
    measured = {}
    for scoring in scorings:
        seconds, of_cpu = [], []
        for _ in range(1 + args.repeats):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            sentence_scores(model, sentences, scoring)
            seconds.append(time.perf_counter() - begin)
            of_cpu.append(time.process_time() - cpu_begin)
        measured[scoring] = {
            "first_seconds": round(seconds[0], 2),
            "pairs_per_second": round(count / statistics.median(seconds[1:])),
            "fastest_pairs_per_second": round(count / min(seconds[1:])),
            "pairs_per_cpu_second": round(count / statistics.median(of_cpu[1:])),
        }
    config = model.config
    result = {
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "model": f"{config.num_layers} x {config.hidden_size}, {config.vocab_size} ids",
        "pairs": count,
        "scoring": measured,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
