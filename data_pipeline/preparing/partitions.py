"""Inputs read in partitions by several machines, and cut into the same shards that one reader would make.

Where a shard ends depends on the sizes of all documents before it. So each partition is measured first,
and the sizes tell how full the shards are where each one begins. Then each is cut by itself, and the pieces
of a shard that spans several partitions are joined.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.names import Split
from data_pipeline.preparing.inputs import Inputs
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.shard_texts import Level, ShardText, digest, empty_levels, gather_shard_texts

SIZES = np.dtype([("bytes", np.uint32), ("is_heldout", np.bool_)])
"""dtype of a document's size and split, which together decide its shard."""

PARTITION_BYTES = 64 << 20
"""Size on disk from which a partition takes no further file."""

_ROWS_AT_ONCE = 1 << 16

Levels = dict[Split, Level]


def split_inputs(inputs: Inputs) -> Iterator[Inputs]:
    """Groups consecutive files into partitions; an input that is not a file is a partition by itself."""
    start, size = 0, 0
    for number, item in enumerate(inputs.items):
        if number > start and (isinstance(item, str) or size >= PARTITION_BYTES):
            yield inputs.part(start, number)
            start, size = number, 0
        size += PARTITION_BYTES if isinstance(item, str) else item.path.stat().st_size
    yield inputs.part(start, len(inputs.items))


def measure(documents: Iterable[Document], heldout_threshold: int) -> np.ndarray:
    """Returns `SIZES` [documents]; documents with `Digest.split` below `heldout_threshold` are held out."""
    found = map(digest, documents)
    return np.fromiter(((one.size, one.split < heldout_threshold) for one in found), SIZES)


def find_levels(partitions: Iterable[np.ndarray]) -> Iterator[tuple[Levels, Levels]]:
    """Yields how full the shards are before and after each partition, given their `SIZES` [documents]."""
    levels = empty_levels()
    for sizes in partitions:
        before = dict(levels)
        for first in range(0, len(sizes), _ROWS_AT_ONCE):
            for size, is_heldout in sizes[first : first + _ROWS_AT_ONCE].tolist():
                split: Split = "heldout" if is_heldout else "train"
                levels[split] = levels[split].after(size)
        yield before, dict(levels)


def cut_partition(
    documents: Iterable[Document], heldout_threshold: int, before: Levels, after: Levels, name: str
) -> Iterator[ShardText]:
    """Yields the texts of one partition's shards; a split's first and last may be pieces of shards.

    Raises UserError at the end if the partition is not the one that was measured; `name` is its first input.
    """
    levels = dict(before)
    yield from gather_shard_texts(documents, heldout_threshold, levels)
    if levels != after:
        raise UserError(f"{name}, or a file after it, is not the same on every worker or changed meanwhile")


def join_shard_texts(ends: Iterable[ShardText]) -> ShardText:
    """Joins the pieces of one shard's text, given in order."""
    first, *more = ends
    documents = [document for end in (first, *more) for document in end.documents]
    return first._replace(documents=documents, size=first.size + sum(end.size for end in more))
