"""The data of a run: checks that a corpus fits an experiment, and its batches as the loop takes them."""

import functools
import glob
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from bert_jax.config import Experiment
from bert_jax.loop import Data, Evaluation, HostBatches
from bert_jax.parallel import Program
from bert_jax.train_step import Params
from data_pipeline.config import Phase, phase_ends
from data_pipeline.errors import UserError

HeldoutBatches: TypeAlias = Callable[[Phase], HostBatches]
"""Phase -> the held-out batches at its sequence length, always the same."""


def fingerprint(corpus: str) -> str:
    """A hash of a corpus's tokens and vocabulary, the same wherever the corpus lies.

    Raises:
      UserError: there is no whole corpus.
    """
    from data_pipeline.corpus import read_manifest

    if not is_prepared(corpus):
        # TFRecords have no manifest: their names and sizes must do.
        pattern = f"{corpus}/*" if Path(corpus).is_dir() else corpus
        paths = [Path(name) for name in sorted(glob.glob(pattern))]
        return _hash([(path.name, path.stat().st_size) for path in paths])
    manifest = read_manifest(Path(corpus))
    shards = {split: part["shards"] for split, part in manifest["splits"].items()}
    return _hash({"tokenizer": manifest["tokenizer"], "shards": shards})


def is_prepared(corpus: str) -> bool:
    """Whether a corpus is a folder made by `bert-jax prepare`, rather than TFRecords."""
    from data_pipeline.corpus import MANIFEST_FILE

    return (Path(corpus) / MANIFEST_FILE).exists()


def check_vocabulary(experiment: Experiment, corpus: str, say: Callable[[str], None]) -> None:
    """Compares the corpus's vocabulary with the model's.

    Raises:
      UserError: the model has fewer rows than the vocabulary has ids.
    """
    from data_pipeline.corpus import read_manifest

    if not is_prepared(corpus):
        return
    ids, rows = read_manifest(Path(corpus))["tokenizer"]["vocab_size"], experiment.model.vocab_size
    if ids > rows:
        raise UserError(
            f"the vocabulary of {corpus} has {ids} entries, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size {ids}"
        )
    if ids < 0.9 * rows:
        say(f"note: model.vocab_size is {rows}, the vocabulary of {corpus} has {ids} entries")


def verify_shards(corpus: str) -> None:
    """Compares every shard with its checksum. Raises UserError that names an altered one."""
    from data_pipeline.corpus import open_corpus, read_manifest

    if is_prepared(corpus):
        splits = read_manifest(Path(corpus))["splits"]
        for split in ("train", "heldout"):
            if splits[split]["shards"]:
                open_corpus(corpus, split).verify()


def make_data(experiment: Experiment, corpus: str) -> Data:
    """The training batches of an experiment from the corpus at a path."""
    from data_pipeline.batches import training_batches

    training = functools.partial(
        training_batches,
        corpus,
        experiment.data,
        seed=experiment.seed,
        global_batch_size=experiment.global_batch_size,
        num_train_steps=experiment.num_train_steps,
    )
    identity = {"seed": experiment.seed, "corpus": corpus, "fingerprint": fingerprint(corpus)}
    return Data(training=lambda step: training(first_step=step), identity=identity)


def heldout_batches(experiment: Experiment, corpus: str) -> HeldoutBatches | None:
    """The evaluation batches of an experiment; None if no documents are held out."""
    from data_pipeline.batches import evaluation_batches, has_heldout

    if not has_heldout(corpus):
        return None
    return functools.partial(
        evaluation_batches,
        corpus,
        experiment.data,
        batch_size=experiment.global_batch_size // experiment.parallel.accumulation_steps,
        examples=experiment.eval_examples,
    )


def make_evaluation(program: Program, experiment: Experiment, heldout: HeldoutBatches) -> Evaluation:
    """Measures held-out documents at the sequence length that the run is at."""
    from bert_jax.evaluation import evaluate

    ends = phase_ends(experiment.data.phases, experiment.num_train_steps)

    def evaluation(params: Params, step: int) -> dict[str, Any]:
        phase = next(p for p, end in zip(experiment.data.phases, ends, strict=True) if step <= end)
        figures = evaluate(program, experiment.model, params, heldout(phase))
        return {"max_seq_length": phase.max_seq_length, **figures}

    return evaluation


def check_batches(experiment: Experiment, data: Data, heldout: HeldoutBatches | None) -> None:
    """Opens the data of every phase, so that what is missing shows before training, not after days.

    Raises:
      UserError: a phase gets no training or no held-out batch.
    """
    data.training(0)
    if heldout is not None:
        for phase in experiment.data.phases:
            heldout(phase)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
