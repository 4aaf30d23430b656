"""A work directory admits one run at a time, and gets a copy of its corpus's tokenizer."""

import errno
import fcntl
import shutil
from pathlib import Path
from typing import IO

import pytest

from bert_jax.workdir.directory import check_mark, copy_tokenizer, is_in_use, lock, mark
from data_pipeline.errors import Unfinished, UserError


def test_lock_is_exclusive_and_a_leftover_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with lock(tmp_path), (tmp_path / "lock").open("a") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock(tmp_path):
        pass


def test_without_locks_it_is_not_known_whether_a_directory_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: IO[str], operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with lock(tmp_path):
        assert is_in_use(tmp_path)
    assert not is_in_use(tmp_path)
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match="has no locks"):
        is_in_use(tmp_path)


def test_a_directory_made_for_nothing_but_its_lock_is_removed(tmp_path: Path) -> None:
    workdir = tmp_path / "new" / "run"
    with lock(workdir):
        mark(workdir)
        (workdir / "compilation-cache").mkdir()
    assert not workdir.parent.exists()
    with lock(workdir):
        (workdir / "config.json").touch()
    assert sorted(path.name for path in workdir.iterdir()) == ["config.json", "lock"]
    (workdir / "config.json").unlink()
    with lock(workdir):
        pass
    assert workdir.exists(), "it was there before"


@pytest.mark.parametrize("made_again", [True, False])
def test_a_directory_that_is_removed_while_it_is_locked_is_locked_again(
    made_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another process that had made it for nothing; a third one may make it again."""
    workdir = tmp_path / "parent" / "run"
    flock, attempts = fcntl.flock, 0

    def replace_first(file: IO[str], operation: int) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            shutil.rmtree(workdir.parent)
            if made_again:
                workdir.mkdir(parents=True)
                (workdir / "lock").touch()
        flock(file, operation)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", replace_first)
        with lock(workdir):
            assert attempts == 2
            with (workdir / "lock").open("a") as other, pytest.raises(BlockingIOError):
                flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert workdir.exists() == made_again


@pytest.mark.parametrize("url", ["gs://bucket/runs/base", "s3://bucket/base"])
def test_a_bucket_is_refused_rather_than_made_a_local_directory(url: str) -> None:
    with (
        pytest.raises(UserError, match=f"work directory {url} is not a directory; mount the bucket"),
        lock(Path(url)),
    ):
        pass


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UserError, match=f"the file system of {tmp_path} has no locks"), lock(tmp_path):
        pass


def test_another_directory_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    with lock(tmp_path):
        token = mark(tmp_path)
        check_mark(tmp_path, token)
        mark(tmp_path)
        with pytest.raises(UserError, match="not the directory that process 0 works in"):
            check_mark(tmp_path, token)


def test_the_tokenizer_is_the_corpus_own_if_it_has_one(tmp_path: Path) -> None:
    run, corpus, records = (tmp_path / name for name in ("run", "corpus", "tfrecords"))
    for directory, name in ((run, "mine.txt"), (corpus, "vocab.txt")):
        (directory / "tokenizer").mkdir(parents=True)
        (directory / "tokenizer" / name).touch()
    copy_tokenizer(str(records), run)
    assert [path.name for path in (run / "tokenizer").iterdir()] == ["mine.txt"]
    copy_tokenizer(str(corpus), run)
    assert [path.name for path in (run / "tokenizer").iterdir()] == ["vocab.txt"]


def test_a_tokenizer_is_not_copied_onto_itself(tmp_path: Path) -> None:
    run, corpus = tmp_path / "run", tmp_path / "corpus"
    (corpus / "tokenizer").mkdir(parents=True)
    (corpus / "tokenizer" / "vocab.txt").touch()
    run.symlink_to(corpus)
    copy_tokenizer(str(corpus), run)
    assert (corpus / "tokenizer" / "vocab.txt").exists()


def test_a_tokenizer_that_cannot_be_copied_leaves_the_one_before(tmp_path: Path) -> None:
    run, corpus = tmp_path / "run", tmp_path / "corpus"
    for directory, name in ((run, "mine.txt"), (corpus, "vocab.txt")):
        (directory / "tokenizer").mkdir(parents=True)
        (directory / "tokenizer" / name).touch()
    (corpus / "tokenizer" / "broken").symlink_to("nowhere")
    with pytest.raises(Unfinished, match="broken cannot be copied"):
        copy_tokenizer(str(corpus), run)
    assert [path.relative_to(run) for path in run.rglob("*.*")] == [Path("tokenizer/mine.txt")]
