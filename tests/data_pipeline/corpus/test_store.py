"""What `data.corpus` may name, told apart in one place."""

from pathlib import Path

import pytest

from data_pipeline.corpus.store import describe, open_store, verify
from data_pipeline.corpus.vocabulary_file import TOKENIZER_DIRECTORY, read_vocabulary
from data_pipeline.errors import UserError
from tests.damage import flip_a_bit
from tests.data_pipeline.small_corpus import random_documents, write_corpus
from tests.data_pipeline.small_records import write_records


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    directory.mkdir()
    write_records(directory / "a.tfrecord", range(3))
    write_records(directory / "heldout.tfrecord", range(2))
    return directory


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "prepared", [random_documents(3)], [random_documents(2)])


def test_a_directory_of_tfrecords_is_what_its_glob_is(records: Path) -> None:
    (records / "notes.txt").write_text("of no account")
    (records / ".a.tfrecord.crc").write_text("a checksum that Hadoop wrote")
    directory, pattern = str(records), f"{records}/*.tfrecord"
    for corpus in (directory, pattern):
        described = describe(corpus)
        assert (described.path, described.is_prepared) == (corpus, False)
        assert (len(open_store(corpus, "train")), len(open_store(corpus, "heldout"))) == (3, 2)
        assert (described.has_heldout, described.vocabulary, described.vocabulary_size) == (True, None, None)
        verify(corpus)
    assert describe(directory).fingerprint == describe(pattern).fingerprint


def test_fingerprints_tell_records_apart(records: Path) -> None:
    before = describe(str(records)).fingerprint
    (records / "a.tfrecord").rename(records / "b.tfrecord")
    renamed = describe(str(records)).fingerprint
    write_records(records / "b.tfrecord", range(4))
    assert len({before, renamed, describe(str(records)).fingerprint}) == 3


def test_a_prepared_directory_is_not_taken_for_records(prepared: Path, tmp_path: Path) -> None:
    write_records(prepared / "a.tfrecord", range(3))
    corpus = str(prepared)
    described = describe(corpus)
    assert (described.is_prepared, described.has_heldout, described.vocabulary_size) == (True, True, 605)
    assert described.vocabulary == read_vocabulary(prepared / TOKENIZER_DIRECTORY)
    assert open_store(corpus, "train").num_documents == 3
    assert described.fingerprint == describe(str(prepared.rename(tmp_path / "moved"))).fingerprint


def test_verify_looks_at_both_splits(prepared: Path) -> None:
    verify(str(prepared))
    shard = prepared / "heldout-00000.arrow"
    flip_a_bit(shard)
    with pytest.raises(UserError, match=r"heldout-00000\.arrow was altered"):
        verify(str(prepared))


def test_what_is_neither_is_named_with_what_would_be(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("not a corpus")
    for corpus in (str(tmp_path), str(tmp_path / "absent"), f"{tmp_path}/*.tfrecord"):
        for look in (describe, verify):
            with pytest.raises(UserError, match=r"is not a corpus; .*bert-jax prepare .*TFRecords") as caught:
                look(corpus)
            assert corpus in str(caught.value)
