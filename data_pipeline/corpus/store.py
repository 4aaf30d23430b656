"""The data that `data.corpus` names: a directory made by `bert-jax prepare`, or a directory or glob of
TFRecords.

Only this module tells the two apart.
"""

import hashlib
import json
from pathlib import Path

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

Store = Corpus | Records

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


def open_store(corpus: str, split: Split) -> Store:
    """Opens one split of a corpus. Raises UserError if it is no corpus, is damaged, or the split is empty."""
    if is_prepared(corpus):
        return open_corpus(corpus, split)
    paths = find_records(corpus, split)
    if not paths:
        raise UserError(f"{corpus} has no {split} TFRecords; files named heldout* are held out")
    return index_records(paths)


def has_heldout(corpus: str) -> bool:
    """Whether a corpus has held-out documents. Raises UserError if it is no corpus."""
    if is_prepared(corpus):
        return bool(read_manifest(Path(corpus))["splits"]["heldout"]["documents"])
    return bool(find_records(corpus, "heldout"))


def vocabulary_size(corpus: str) -> int | None:
    """Number of ids; None for TFRecords without a `vocab.txt`. Raises UserError as `find_vocabulary`."""
    if is_prepared(corpus):
        return read_manifest(Path(corpus))["tokenizer"]["vocab_size"]
    vocabulary = find_vocabulary(corpus)
    return len(vocabulary.pieces()) if vocabulary else None


def find_vocabulary(corpus: str) -> Vocabulary | None:
    """What a corpus was made with; of TFRecords the `vocab.txt` beside them, None if there is none.

    Raises:
      UserError: it is no corpus, or `vocab.txt` is not a vocabulary of BERT's.
    """
    if is_prepared(corpus):
        return read_vocabulary(Path(corpus) / TOKENIZER_DIRECTORY)
    vocabulary = read_records_vocabulary(corpus)
    if vocabulary is not None:
        take_vocabulary(vocabulary, records_directory(corpus) / vocabulary.file_name)
    return vocabulary


def fingerprint(corpus: str) -> str:
    """A hash of a corpus's tokens and vocabulary, the same wherever it is stored.

    TFRecords have no checksum of a whole file, so theirs is a hash of file names and sizes. Raises UserError
    if it is no corpus.
    """
    if not is_prepared(corpus):
        # In reading order, which decides the batches.
        paths = [path for split in _SPLITS for path in find_records(corpus, split)]
        return _hash([(path.name, path.stat().st_size) for path in paths])
    manifest = read_manifest(Path(corpus))
    shards = {split: manifest["splits"][split]["shards"] for split in _SPLITS}
    return _hash({"tokenizer": manifest["tokenizer"], "shards": shards})


def verify(corpus: str) -> None:
    """Compares every shard or record with its checksum. Raises UserError naming the first altered file."""
    if not is_prepared(corpus):
        verify_records([path for split in _SPLITS for path in find_records(corpus, split)])
        return
    splits = read_manifest(Path(corpus))["splits"]
    for split in _SPLITS:
        if splits[split]["shards"]:
            open_corpus(corpus, split).verify()


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
