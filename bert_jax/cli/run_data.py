"""The data of a run: checks that a corpus fits an experiment, and its batches as the loop takes them."""

import functools
import glob
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from bert_jax.config import Experiment
from bert_jax.loop import Data
from data_pipeline.errors import UserError


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
    """The batches of an experiment from the corpus at a path.

    Raises:
      UserError: the corpus gives no training batch.
    """
    from data_pipeline.batches import evaluation_batches, has_heldout, training_batches

    training = functools.partial(
        training_batches,
        corpus,
        experiment.data,
        seed=experiment.seed,
        global_batch_size=experiment.global_batch_size,
        num_train_steps=experiment.num_train_steps,
    )
    evaluation = functools.partial(
        evaluation_batches,
        corpus,
        experiment.data,
        batch_size=experiment.global_batch_size // experiment.parallel.accumulation_steps,
        examples=experiment.eval_examples,
    )
    identity = {"seed": experiment.seed, "corpus": corpus, "fingerprint": fingerprint(corpus)}
    return Data(
        training=lambda step: training(first_step=step),
        evaluation=evaluation if has_heldout(corpus) else None,
        identity=identity,
    )


def check_batches(experiment: Experiment, data: Data) -> None:
    """Opens the data of every phase, so that what is missing shows before training, not after days.

    Raises:
      UserError: a phase gets no training or no held-out batch.
    """
    data.training(0)
    if data.evaluation is not None:
        for phase in experiment.data.phases:
            data.evaluation(phase)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
