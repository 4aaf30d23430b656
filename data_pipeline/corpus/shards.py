"""One shard: whole documents as sentences of token ids, in an Arrow IPC file of one record batch.

Its single column `documents` has one row per document: a list of sentences, each a list of ids. Any Arrow
reader opens it; here it is memory-mapped without copying.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from data_pipeline.atomic import atomically
from data_pipeline.errors import bad_input

COLUMN = "documents"
_FILTERED = "filtered_documents"


@dataclasses.dataclass(frozen=True)
class Shard:
    """The arrays of a shard; views of the mapped file if it was read from one."""

    tokens: np.ndarray
    """uint16 or uint32 [tokens]"""
    sentence_starts: np.ndarray
    """int32 [sentences + 1]: the first token of each sentence, then the number of tokens."""
    document_starts: np.ndarray
    """int32 [documents + 1]: the first sentence of each document, then the number of sentences."""
    filtered: int = 0
    """Number of documents of its text that a filter left out."""


def make_shard(documents: Sequence[Sequence[Sequence[int] | np.ndarray]], dtype: np.dtype) -> Shard:
    """Joins documents, lists of sentences of ids, into a shard. Drops empty sentences and documents."""
    kept = [[ids for ids in document if len(ids)] for document in documents]
    kept = [document for document in kept if document]
    sentences = [ids for document in kept for ids in document]
    arrays = [np.asarray(ids, dtype) for ids in sentences]
    return Shard(
        tokens=np.concatenate(arrays) if arrays else np.empty(0, dtype),
        sentence_starts=_starts([len(ids) for ids in sentences]),
        document_starts=_starts([len(document) for document in kept]),
    )


def write_shard(path: Path, shard: Shard) -> None:
    """Writes `path` atomically, even if several processes do so; the same shard gives the same bytes."""
    sentences = pa.ListArray.from_arrays(pa.array(shard.sentence_starts), pa.array(shard.tokens))
    documents = pa.ListArray.from_arrays(pa.array(shard.document_starts), sentences)
    # Kept in the shard, so that a restart knows it without reading the text again.
    metadata = {_FILTERED: str(shard.filtered)} if shard.filtered else None
    batch = pa.record_batch([documents], names=[COLUMN], metadata=metadata)
    with (
        atomically(path) as partial,
        partial.open("wb") as file,
        pa.ipc.new_file(file, batch.schema) as writer,
    ):
        writer.write_batch(batch)


def read_shard(path: Path) -> Shard:
    """Maps `path` into memory; nothing is copied and no file stays open.

    Raises UserError if it is not a shard.
    """
    try:
        with pa.memory_map(str(path)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
            documents = batch.column(COLUMN)
            filtered = int((batch.schema.metadata or {}).get(_FILTERED.encode(), 0))
            sentences = documents.values
            arrays = (sentences.values, sentences.offsets, documents.offsets)
            tokens, sentence_starts, document_starts = (array.to_numpy() for array in arrays)
    except (OSError, pa.ArrowException, KeyError, AttributeError) as error:
        raise bad_input(
            error, path, f"{path} is not a whole shard; delete its directory and run `bert-jax prepare` again"
        ) from None
    return Shard(tokens, sentence_starts, document_starts, filtered)


def _starts(lengths: Sequence[int]) -> np.ndarray:
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts
