"""A run small enough for tests: a corpus of made-up sentences and a model of one layer."""

import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.training.checkpoints import saved_steps
from bert_jax.training.metric_log import read_rows
from data_pipeline.corpus.tokenizer import WordPiece
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from tests.data_pipeline import small_corpus

WORDS = ("the", "a", "old", "young", "cat", "dog", "bird", "sees", "hears", "likes", "small", "house")

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
"""Turn `quickstart_bert` into a run of seconds."""


def write_corpus(
    directory: Path, *, seed: int = 0, words: Sequence[str] = WORDS, more_words: Sequence[str] = ()
) -> Path:
    """Writes a corpus of 40 documents for training and 8 held out; the same seed, the same text.

    Args:
      words: in the order that they have in the vocabulary.
      more_words: further ones of the vocabulary, which the text does not use.
    """
    tokenizer = WordPiece([*SPECIAL_TOKENS, *words, "tree", "near", "far", *more_words], "uncased")
    draw = random.Random(seed)
    texts = [[" ".join(draw.choices(words, k=6)) for _ in range(8)] for _ in range(48)]
    documents = [tokenizer.encode_batch(sentences) for sentences in texts]
    return small_corpus.write_corpus(directory, [documents[:40]], [documents[40:]], tokenizer)


def arguments(workdir: Path, corpus: Path, *flags: str, given: Mapping[str, Any] = FLAGS) -> list[str]:
    """The arguments of `bert-jax` for a tiny run; of a flag given twice the last one counts."""
    place = ("--workdir", str(workdir), "--data.corpus", str(corpus))
    tiny = (word for flag, value in given.items() for word in (flag, str(value)))
    return ["pretrain", "quickstart_bert", *place, *tiny, *flags]


# One step with a tiny learning rate, so that the initial parameters can still be seen.
ONE_STEP = ("--num-train-steps", "1", "--optimizer.learning-rate", "1e-12")


def further(workdir: Path, corpus: Path, model: Path, *flags: str) -> list[str]:
    """As `arguments`, for a run that starts from a model and takes its shape."""
    given = {flag: value for flag, value in FLAGS.items() if not flag.startswith("--model.")}
    return arguments(workdir, corpus, "--init-from", str(model), *flags, given=given)


def assert_close(left: Any, right: Any) -> None:
    """Asserts that the arrays of two trees differ by no more than `ONE_STEP` changes them."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), left, right)


def command(*args: str) -> list[str]:
    """The command line that runs `bert-jax` with these arguments in a separate process."""
    return [sys.executable, "-m", "bert_jax.cli.main", *args]


def environment() -> dict[str, str]:
    """The environment of a separate process: one CPU device, and the compiled programs of all tests."""
    return {**os.environ, "JAX_PLATFORMS": "cpu"}


def ended(line: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A separate process that has run to its end, in `environment` with further variables."""
    return subprocess.run(
        line, env=environment() | variables, capture_output=True, text=True, check=False, timeout=600
    )


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


def assert_same_run(workdir: Path, expected: Path) -> None:
    """Asserts bitwise the same parameters, optimizer state and metrics at the end of two runs."""
    ours, theirs = final_state(workdir), final_state(expected)
    assert ours.keys() == theirs.keys()
    assert [path for path in theirs if not np.array_equal(ours[path], theirs[path])] == []
    assert deterministic_rows(workdir) == deterministic_rows(expected)
