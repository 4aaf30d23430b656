"""Static mode: records of google-research/bert's layout in the order of every other corpus."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.store import describe, verify
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import evaluation_batches, training_batches
from data_pipeline.tensorflow_cpu import tf
from tests.data_pipeline import small_records
from tests.data_pipeline.same_batches import assert_same, rows_of
from tests.data_pipeline.small_records import make_example, write_records

PHASE = Phase(16, 3)
DATA = DataConfig(phases=(PHASE,))


@pytest.fixture
def directory(tmp_path):
    write_records(tmp_path / "a.tfrecord", range(13))
    write_records(tmp_path / "b.tfrecord", range(13, 30))
    write_records(tmp_path / "heldout.tfrecord", range(100, 105))
    return tmp_path


def train(corpus, data=DATA, **changes):
    settings = {"seed": 1, "global_batch_size": 6, "num_train_steps": 10, "first_step": 0, **changes}
    return list(training_batches(str(corpus), data, **settings))


def test_an_epoch_holds_every_record_as_it_was_written(directory):
    rows = [
        {key: values[row] for key, values in batch.items()}
        for batch in train(directory, num_train_steps=5)
        for row in range(6)
    ]
    numbers = [int(row["input_ids"][0]) for row in rows]
    assert sorted(numbers) == list(range(30))
    assert numbers != sorted(numbers)
    for row, number in zip(rows, numbers, strict=True):
        for key, values in make_example(number).items():
            np.testing.assert_array_equal(np.atleast_1d(row[key]), values)
            assert row[key].dtype == (np.float32 if key == "masked_lm_weights" else np.int32)


def test_a_record_of_another_length_is_named(directory, monkeypatch):
    monkeypatch.setattr(small_records, "make_example", lambda n: make_example(n) | {"input_ids": [n] * 8})
    write_records(directory / "shorter", [50])
    joined = directory / "a.tfrecord"
    joined.write_bytes(joined.read_bytes() + (directory / "shorter").read_bytes())
    with pytest.raises(UserError, match=f"a record of {directory} has other shapes than the first one"):
        train(directory)


def test_records_are_read_on_where_the_batch_grows(directory):
    growing = dataclasses.replace(DATA, batch_schedule=((0.5, 0.5),))
    ids = [np.concatenate([b["input_ids"] for b in train(directory, data)]) for data in (growing, DATA)]
    np.testing.assert_array_equal(ids[0], ids[1][: 5 * 3 + 5 * 6])


@pytest.mark.parametrize("pattern", ["", "[ab].tfrecord"])
def test_order_does_not_depend_on_where_a_run_was_interrupted(directory, pattern):
    corpus = directory / pattern
    whole = train(corpus)
    assert_same(train(corpus, first_step=7), whole[7:])
    for part in (0, 3):
        half = train(corpus, rows=lambda size, part=part: ((part, part + size // 2),))
        assert_same(half, [rows_of(batch, ((part, part + 3),)) for batch in whole])


def test_files_named_heldout_are_for_evaluation(directory):
    (batch,) = evaluation_batches(str(directory), DATA, PHASE, batch_size=8, examples=100)
    assert batch["input_ids"][:, 0].tolist() == [100, 101, 102, 103, 104, 0, 0, 0]
    assert describe(str(directory)).has_heldout
    (directory / "heldout.tfrecord").unlink()
    assert not describe(str(directory)).has_heldout
    with pytest.raises(UserError, match="no heldout TFRecords"):
        evaluation_batches(str(directory), DATA, PHASE, batch_size=8, examples=100)


@pytest.mark.parametrize("lost", [1, 4, 30])
def test_a_truncated_file_is_named(directory, lost):
    path = directory / "b.tfrecord"
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UserError, match=r"b\.tfrecord is truncated"):
        train(directory)


def test_an_altered_record_is_named(directory):
    verify(str(directory))
    path = directory / "b.tfrecord"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"b\.tfrecord was altered .*: corrupted record at 12"):
        verify(str(directory))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="lists open files as Linux does")
def test_no_file_stays_open(directory):
    batches = training_batches(
        str(directory), DATA, seed=1, global_batch_size=6, num_train_steps=10, first_step=0
    )
    next(batches)
    still_open = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [path for path in still_open if str(directory) in path]


def test_files_that_hold_something_else_are_named(tmp_path):
    (tmp_path / "x.tfrecord").write_text("no record, but text\n" * 10)
    with pytest.raises(UserError, match=r"x\.tfrecord is truncated or is not a file of TFRecords"):
        train(tmp_path)
    (tmp_path / "x.tfrecord").write_bytes(b"")
    with pytest.raises(UserError, match=r"x\.tfrecord is empty"):
        train(tmp_path)
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as writer:
        writer.write(b"\xff\xfe no example")
    with pytest.raises(UserError, match=r"x\.tfrecord does not hold tf\.train\.Example"):
        train(tmp_path)


def test_records_of_another_length_are_refused_and_both_lengths_named(directory):
    with pytest.raises(UserError, match=r"a\.tfrecord has 16 values of input_ids .* wants 128"):
        train(directory, DataConfig())
    with pytest.raises(UserError, match=r"has 3 values of masked_lm_positions .* wants 4"):
        train(directory, DataConfig(phases=(Phase(16, 4),)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masking": MaskingConfig(rate=0.0)}, r"data\.masking\.rate is 0\.0, but .*a\.tfrecord"),
        ({"masking": MaskingConfig(mask=0.0, random=0.9)}, r"data\.masking\.mask is 0\.0, but"),
        ({"pairing": "contiguous"}, r"data\.pairing is contiguous, but .* leave it at next_sentence, or"),
        ({"max_instances_per_row": 2}, r"data\.max_instances_per_row is 2, but"),
    ],
)
def test_settings_that_records_do_not_follow_are_refused(directory, change, message):
    with pytest.raises(UserError, match=message):
        train(directory, dataclasses.replace(DATA, **change))


def test_a_file_whose_name_looks_like_a_pattern_is_read(tmp_path):
    (tmp_path / "[v1]").mkdir()
    write_records(tmp_path / "[v1]" / "a.tfrecord", range(30))
    assert len(train(tmp_path / "[v1]" / "a.tfrecord")) == 10


def test_one_corpus_of_records_may_have_a_weight(directory):
    assert_same(train(directory, dataclasses.replace(DATA, weights=(1.0,))), train(directory))


def test_a_glob_that_matches_nothing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\*"):
        train(tmp_path / "none*")
