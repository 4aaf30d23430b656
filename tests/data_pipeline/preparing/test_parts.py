"""Parts: however the inputs are split into parts, the shards are the same as from a single reader."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.errors import UserError
from data_pipeline.preparing import shard_texts
from data_pipeline.preparing.inputs import InputFile, Inputs, Source
from data_pipeline.preparing.parts import cut_part, find_levels, join_shard_texts, measure, split_inputs
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.shard_texts import ShardText, gather_shard_texts

THRESHOLD = 1 << 62  # holds out one document in four

documents = st.text("ab \nü", min_size=1, max_size=60) | st.lists(st.text("cd", min_size=1), min_size=1)


def shard_texts_of_parts(parts: list[list[Document]]) -> list[ShardText]:
    """The shards' texts, measured, cut and joined part by part as on several machines."""
    levels = find_levels(measure(part, THRESHOLD) for part in parts)
    ends: dict[str, list[ShardText]] = {}
    for part, (before, after) in zip(parts, levels, strict=True):
        for text in cut_part(part, THRESHOLD, before, after, "a part"):
            ends.setdefault(text.file, []).append(text)
    return [join_shard_texts(found) for found in ends.values()]


@settings(deadline=None)
@given(st.lists(st.lists(documents, max_size=12), max_size=6))
def test_shard_texts_of_parts_are_those_of_one_reader(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_texts, "SHARD_TEXT_BYTES", 100)
        whole = list(gather_shard_texts([document for part in parts for document in part], THRESHOLD))
        assert sorted(shard_texts_of_parts(parts)) == sorted(whole)


def test_small_files_are_read_together(tmp_path, monkeypatch):
    monkeypatch.setattr("data_pipeline.preparing.parts.PART_BYTES", 10)
    files = []
    for number, size in enumerate((4, 4, 4, 4, 11, 1)):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(b"x" * size)
        files.append(InputFile(path, "text"))
    found = (*files[:5], "tfds:one", "tfds:two", files[5], "tfds:three")
    parts = [part.parts for part in split_inputs(Inputs(Source(()), found))]
    assert parts == [found[:3], found[3:5], ("tfds:one",), ("tfds:two",), (files[5],), ("tfds:three",)]


def test_sizes_are_found_in_blocks(monkeypatch):
    monkeypatch.setattr("data_pipeline.preparing.parts._ROWS_AT_ONCE", 3)
    monkeypatch.setattr(shard_texts, "SHARD_TEXT_BYTES", 10)
    (_, after), *more = find_levels([measure(["a" * 7] * 8, 0), np.empty(0, measure([], 0).dtype)])
    assert after["train"] == (4, 0)
    assert more == [(after, after)]


def test_a_part_that_changed_is_named():
    (before, after), *_ = find_levels([measure(["one", "two"], 0)])
    with pytest.raises(UserError, match=r"news\.txt, or a file after it, is not the same on every"):
        list(cut_part(["one", "three"], 0, before, after, "news.txt"))
