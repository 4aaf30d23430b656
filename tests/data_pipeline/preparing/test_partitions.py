"""Partitions: however the inputs are divided, the shards are the same as from a single reader."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.errors import UserError
from data_pipeline.preparing import shard_texts
from data_pipeline.preparing.inputs import InputFile, Inputs, Source
from data_pipeline.preparing.partitions import (
    cut_partition,
    find_levels,
    join_shard_texts,
    measure,
    split_inputs,
)
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.shard_texts import ShardText, gather_shard_texts

THRESHOLD = 1 << 62  # holds out one document in four

documents = st.text("ab \nü", min_size=1, max_size=60) | st.lists(st.text("cd", min_size=1), min_size=1)


def shard_texts_of_partitions(partitions: list[list[Document]]) -> list[ShardText]:
    """The shards' texts, measured, cut and joined partition by partition as on several machines."""
    levels = find_levels(measure(partition, THRESHOLD) for partition in partitions)
    ends: dict[str, list[ShardText]] = {}
    for partition, (before, after) in zip(partitions, levels, strict=True):
        for text in cut_partition(partition, THRESHOLD, before, after, "a partition"):
            ends.setdefault(text.file, []).append(text)
    return [join_shard_texts(found) for found in ends.values()]


@settings(deadline=None)
@given(st.lists(st.lists(documents, max_size=12), max_size=6))
def test_shard_texts_of_partitions_are_those_of_one_reader(partitions):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_texts, "SHARD_TEXT_BYTES", 100)
        whole = list(gather_shard_texts(itertools.chain(*partitions), THRESHOLD))
        assert sorted(shard_texts_of_partitions(partitions)) == sorted(whole)


def test_small_files_are_read_together(tmp_path, monkeypatch):
    monkeypatch.setattr("data_pipeline.preparing.partitions.PARTITION_BYTES", 10)
    files = []
    for number, size in enumerate((4, 4, 4, 4, 11, 1)):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(b"x" * size)
        files.append(InputFile(path, "text"))
    found = (*files[:5], "tfds:one", "tfds:two", files[5], "tfds:three")
    partitions = [partition.items for partition in split_inputs(Inputs(Source(()), found))]
    assert partitions == [found[:3], found[3:5], ("tfds:one",), ("tfds:two",), (files[5],), ("tfds:three",)]


def test_sizes_are_found_in_blocks(monkeypatch):
    monkeypatch.setattr("data_pipeline.preparing.partitions._ROWS_AT_ONCE", 3)
    monkeypatch.setattr(shard_texts, "SHARD_TEXT_BYTES", 10)
    (_, after), *more = find_levels([measure(["a" * 7] * 8, 0), np.empty(0, measure([], 0).dtype)])
    assert after["train"] == (4, 0)
    assert more == [(after, after)]


def test_a_part_that_changed_is_named():
    (before, after), *_ = find_levels([measure(["one", "two"], 0)])
    with pytest.raises(UserError, match=r"news\.txt, or a file after it, is not the same on every"):
        list(cut_partition(["one", "three"], 0, before, after, "news.txt"))
