"""A run small enough for tests: a corpus of made-up sentences and a model of one layer."""

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.checkpoints import saved_steps
from bert_jax.metric_log import read_rows
from data_pipeline.corpus import FORMAT_VERSION, MANIFEST_FILE, checksum
from data_pipeline.shards import make_shard, write_shard
from data_pipeline.tokenizer import load_vocabulary
from data_pipeline.vocabulary_file import TOKENIZER_FOLDER

_WORDS = ("the", "a", "old", "young", "cat", "dog", "bird", "sees", "hears", "likes", "small", "house")

FLAGS = {
    "--model.vocab-size": 20,
    "--model.num-layers": 1,
    "--model.hidden-size": 16,
    "--model.num-heads": 2,
    "--model.intermediate-size": 32,
    "--model.max-position-embeddings": 32,
    "--data.phases.0.max-seq-length": 16,
    "--data.phases.0.max-predictions-per-seq": 4,
    "--optimizer.learning-rate": 0.01,
    "--optimizer.warmup-steps": 10,
    "--num-train-steps": 200,
    "--global-batch-size": 8,
    "--log-every": 10,
    "--eval-every": 100,
    "--eval-examples": 16,
    "--checkpoint-every": 20,
    "--keep-checkpoints": 2,
}
"""Turn `quickstart` into a run of seconds."""


def write_corpus(directory: Path, *, seed: int = 0, more_words: Sequence[str] = ()) -> Path:
    """Writes a corpus of 40 documents for training and 8 held out; the same seed, the same text."""
    directory.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, "tree", "near", "far", *more_words]
    file = directory / "vocab.txt"
    file.write_text("\n".join(words) + "\n", encoding="utf-8")
    tokenizer = load_vocabulary(file, "uncased")
    tokenizer.save(directory / TOKENIZER_FOLDER)
    draw = random.Random(seed)
    splits = {}
    for split, size in (("train", 40), ("heldout", 8)):
        texts = [[" ".join(draw.choices(_WORDS, k=6)) for _ in range(8)] for _ in range(size)]
        documents = [tokenizer.encode_batch(sentences) for sentences in texts]
        path = directory / f"{split}-00000.arrow"
        write_shard(path, make_shard(documents, np.dtype(np.uint16)))
        shard = {"file": path.name, "bytes": path.stat().st_size, "sha256": checksum(path)}
        splits[split] = {"documents": size, "shards": [shard]}
    manifest = {
        "format_version": FORMAT_VERSION,
        "tokenizer": {"sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size},
        "splits": splits,
    }
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest), encoding="utf-8")
    return directory


def arguments(workdir: Path, corpus: Path, *flags: str) -> list[str]:
    """What stands after `bert-jax` for a tiny run; of flags given twice the last one counts."""
    tiny = [word for flag, value in FLAGS.items() for word in (flag, str(value))]
    return [
        *("pretrain", "quickstart", "--workdir", str(workdir), "--data.corpus", str(corpus)),
        *tiny,
        *flags,
    ]


def command(*args: str) -> list[str]:
    """A command line for a process of its own."""
    return [sys.executable, "-m", "bert_jax.cli.main", *args]


def environment(cache: Path) -> dict[str, str]:
    """One CPU device, and compiled programs shared between the processes of a test session."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "",
    }


def final_state(workdir: Path) -> dict[str, Any]:
    """The newest checkpoint's arrays by their path: parameters, optimizer state, step and sums."""
    step = saved_steps(workdir)[-1]
    source = (workdir / "checkpoints" / str(step) / "default").absolute()
    with ocp.PyTreeCheckpointer() as checkpointer:
        saved = checkpointer.metadata(source).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved)
        tree = checkpointer.restore(source, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def deterministic_rows(workdir: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl without what a clock decides."""
    rows = read_rows(workdir / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name != "timing"} for row in rows]
