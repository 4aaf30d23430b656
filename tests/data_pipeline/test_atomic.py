"""Files and directories written atomically appear whole or not at all."""

import json
import os
from pathlib import Path

import pytest

from data_pipeline.atomic import atomically, copy_tree, is_partial, write_bytes, write_json
from data_pipeline.errors import Unfinished
from tests.full_disk import files_no_larger_than


class Interrupted(Exception):
    pass


def fail_over(path: Path) -> None:
    with atomically(path) as partial:
        if path.suffix:
            partial.write_bytes(b"half")
        else:
            (partial / "inner").mkdir(parents=True)
        raise Interrupted


def test_a_failed_block_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_bytes(file, b"old")
    for path in (file, tmp_path / "directory"):
        with pytest.raises(Interrupted):
            fail_over(path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file.txt", b"old")]


def test_while_it_is_made_a_file_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_bytes(file, b"old")
    with atomically(file) as partial:
        partial.write_bytes(b"new")
        assert file.read_bytes() == b"old"
    assert file.read_bytes() == b"new"


def test_content_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronized = []

    def note(file: int) -> None:
        newest = "directory" if (tmp_path / "file").exists() else "file"
        assert not (tmp_path / newest).exists()
        synchronized.append(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    write_bytes(tmp_path / "file", b"new")
    with atomically(tmp_path / "directory") as partial:
        (partial / "inner").mkdir(parents=True)
        (partial / "inner" / "file").touch()
    assert synchronized == [(tmp_path / name).stat().st_ino for name in ("file", "directory/inner/file")]


def test_a_directory_is_not_put_in_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "kept").touch()
    with pytest.raises(OSError, match="not empty"), atomically(tmp_path / "directory") as partial:
        partial.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["directory", "kept"]


def test_a_directory_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "gone").symlink_to(tmp_path / "nothing")
    with pytest.raises(Unfinished, match=r"source/gone cannot be copied: .*No such file"):
        copy_tree(tmp_path / "source", tmp_path / "target")


def test_what_fails_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'\S*/no-such-directory/file'"):
        write_bytes(tmp_path / "no-such-directory" / "file", b"text")
    with (
        pytest.raises(FileNotFoundError, match=rf"'{tmp_path}/out/gone/file'"),
        atomically(tmp_path / "out") as partial,
    ):
        (partial / "gone" / "file").touch()


def test_a_full_disk_is_named_after_what_was_to_be_written(tmp_path: Path) -> None:
    with (
        files_no_larger_than(100),
        pytest.raises(OSError, match=rf"File too large: '{tmp_path}/out'"),
        atomically(tmp_path / "out") as partial,
    ):
        write_bytes(partial, bytes(200))


def test_where_nothing_can_be_made_the_name_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=rf"'{tmp_path}/file/out'"):
        write_bytes(tmp_path / "file" / "out", b"text")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(pipe, b"text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


def test_json_of_what_json_has_no_word_for(tmp_path: Path) -> None:
    value = {"nan": [float("nan")], "not UTF-8": b"caf\xe9".decode(errors="surrogateescape"), "é": (1, 2.5)}
    write_json(tmp_path / "file.json", value)
    text = (tmp_path / "file.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"nan": [None], "not UTF-8": "caf\udce9", "é": [1, 2.5]}
    assert '"é"' in text
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file.json", float("inf"))


def test_what_is_being_written_is_known_by_its_path(tmp_path: Path) -> None:
    with atomically(tmp_path / "tokenizer") as partial:
        partial.mkdir()
        for path in (partial, partial / "vocab.txt"):
            assert is_partial(path.relative_to(tmp_path).as_posix())
    assert not is_partial("tokenizer/vocab.txt")
