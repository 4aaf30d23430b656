"""The data that `data.corpus` names: directories made by `bert-jax prepare`, or a directory or glob of
TFRecords.

Only this module tells the two apart.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

from data_pipeline.config import split_corpora, weigh_corpora
from data_pipeline.corpus.documents import MANIFEST_FILE, Corpus, open_corpus, read_manifest
from data_pipeline.corpus.tokenizer import take_vocabulary
from data_pipeline.corpus.vocabulary_file import (
    TOKENIZER_DIRECTORY,
    Vocabulary,
    read_records_vocabulary,
    read_vocabulary,
    records_directory,
)
from data_pipeline.errors import UserError
from data_pipeline.names import Split
from data_pipeline.pretraining.tfrecords import Records, find_records, index_records, verify_records

_SPLITS: tuple[Split, ...] = ("train", "heldout")


def is_prepared(corpus: str) -> bool:
    """True for a corpus of `bert-jax prepare`, False for TFRecords. Raises UserError if it is neither."""
    if (Path(corpus) / MANIFEST_FILE).exists():
        return True
    if any(find_records(corpus, split) for split in _SPLITS):
        return False
    raise UserError(
        f"{corpus} is not a corpus; give a directory made by `bert-jax prepare INPUT --output DIR`, "
        f"or a directory or a glob of TFRecords"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """One split of several corpora."""

    corpora: tuple[Corpus, ...]
    weights: tuple[float, ...]
    """Fraction of the rows that is of each."""


Store = Corpus | Records | Mixture


def open_store(corpus: str, split: Split, weights: tuple[float, ...] = ()) -> Store:
    """Opens one split of a corpus, or of several corpora with a weight each.

    Raises UserError if one is no corpus, is damaged, or the split is empty.
    """
    weighted = weigh_corpora(corpus, weights)
    if len(weighted) > 1:
        corpora = tuple(open_corpus(name, split, len(weighted)) for name in weighted)
        return Mixture(corpora, tuple(weighted.values()))
    if is_prepared(corpus):
        return open_corpus(corpus, split)
    paths = find_records(corpus, split)
    if not paths:
        raise UserError(f"{corpus} has no {split} TFRecords; files named heldout* are held out")
    return index_records(paths)


@dataclasses.dataclass(frozen=True)
class Description:
    """What is known of a corpus before its text is read."""

    path: str
    is_prepared: bool
    """Whether `bert-jax prepare` made it; it is of TFRecords if not."""
    vocabulary: Vocabulary | None
    """What it was made with; of TFRecords the `vocab.txt` beside them, whose casing is a guess, or None."""
    vocabulary_size: int | None
    """Number of ids; None if the vocabulary is not known."""
    has_heldout: bool
    """Whether some of its documents are held out; of several corpora, of each."""
    fingerprint: str
    """A hash of its tokens and vocabulary, the same wherever it is stored. TFRecords have no checksum of a
    whole file, so theirs is a hash of file names and sizes."""


def describe(corpus: str) -> Description:
    """Describes a corpus, or several ones that `corpus` names, of one vocabulary, as one.

    Raises:
      UserError: it is no corpus, or its vocabulary is missing, damaged or none of BERT's; several have
        different vocabularies, or are of TFRecords.
    """
    first, *others = map(_describe, split_corpora(corpus))
    if not others:
        return first
    for one in (first, *others):
        if not one.is_prepared:
            raise UserError(
                f"{one.path} is of TFRecords; data.corpus mixes corpora of `bert-jax prepare` alone"
            )
        if one.vocabulary != first.vocabulary:
            raise UserError(
                f"{one.path} has another vocabulary than {first.path}, but mixed corpora must have the same; "
                f"prepare its text with --vocab {first.path}"
            )
    return dataclasses.replace(
        first,
        path=corpus,
        has_heldout=first.has_heldout and all(other.has_heldout for other in others),
        fingerprint=_hash([first.fingerprint, *(other.fingerprint for other in others)]),
    )


def _describe(corpus: str) -> Description:
    if not is_prepared(corpus):
        return _describe_records(corpus)
    manifest = read_manifest(Path(corpus))
    shards = {split: manifest["splits"][split]["shards"] for split in _SPLITS}
    return Description(
        path=corpus,
        is_prepared=True,
        vocabulary=read_vocabulary(Path(corpus) / TOKENIZER_DIRECTORY),
        vocabulary_size=manifest["tokenizer"]["vocab_size"],
        has_heldout=bool(manifest["splits"]["heldout"]["documents"]),
        fingerprint=_hash({"tokenizer": manifest["tokenizer"], "shards": shards}),
    )


def _describe_records(corpus: str) -> Description:
    vocabulary = read_records_vocabulary(corpus)
    if vocabulary is not None:
        take_vocabulary(vocabulary, records_directory(corpus) / vocabulary.file_name)
    train, heldout = (find_records(corpus, split) for split in _SPLITS)
    return Description(
        path=corpus,
        is_prepared=False,
        vocabulary=vocabulary,
        vocabulary_size=len(vocabulary.pieces()) if vocabulary else None,
        has_heldout=bool(heldout),
        # In reading order, which decides the batches.
        fingerprint=_hash([(path.name, path.stat().st_size) for path in (*train, *heldout)]),
    )


def verify(corpus: str) -> None:
    """Compares every shard or record with its checksum. Raises UserError naming the first altered file."""
    for name in split_corpora(corpus):
        if not is_prepared(name):
            verify_records([path for split in _SPLITS for path in find_records(name, split)])
            continue
        splits = read_manifest(Path(name))["splits"]
        for split in _SPLITS:
            if splits[split]["shards"]:
                open_corpus(name, split).verify()


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
