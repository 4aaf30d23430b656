"""Inputs: what a directory, a glob or a name stands for, and how unchanged inputs are recognised."""

import gzip
import os

import pytest

from data_pipeline.errors import UserError
from data_pipeline.preparing.inputs import Source, find_inputs
from tests.data_pipeline.preparing.read_inputs import WIKI, read
from tests.data_pipeline.tiny_tfds import store, text_features


def test_directories_and_globs_are_walked_in_order_without_hidden_files(tmp_path):
    for name in ("b/2.txt", "b/1.txt", "a/3.txt", ".hidden/x.txt", "a/.x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    assert read(tmp_path, format="text") == ["a/3.txt", "b/1.txt", "b/2.txt"]
    assert read(f"{tmp_path}/*/[12].txt", format="text") == ["b/1.txt", "b/2.txt"]
    assert read(f"{tmp_path}/[ab]*", format="text") == ["a/3.txt", "b/1.txt", "b/2.txt"]
    assert read(f"{tmp_path}/**", format="text") == ["a/3.txt", "b/1.txt", "b/2.txt"]


def test_linked_directories_are_walked_once(tmp_path):
    for name in ("in/b/1.txt", "elsewhere/2.txt", "elsewhere/more/3.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    links = {"a": "in/b", "c": "elsewhere", "d": "elsewhere/more", "b/loop": "in"}
    for name, target in links.items():
        (tmp_path / "in" / name).symlink_to(tmp_path / target)
    assert read(tmp_path / "in", format="text") == ["in/b/1.txt", "elsewhere/2.txt", "elsewhere/more/3.txt"]


def test_a_file_is_read_once_however_it_is_named(tmp_path):
    (tmp_path / "in" / "b").mkdir(parents=True)
    for name in ("1.txt", "b/2.txt", "b/3.txt"):
        (tmp_path / "in" / name).write_text(f"{name}\n")
    (tmp_path / "in" / "0.txt").symlink_to("b/3.txt")
    (tmp_path / "link").symlink_to("in/b")
    found = find_inputs(Source((str(tmp_path / "in"),), format="text"))
    assert [str(item)[len(str(tmp_path)) :] for item in found.items] == [
        "/in/1.txt",
        "/in/b/2.txt",
        "/in/b/3.txt",
    ]
    names = (tmp_path / "in/b/3.txt", tmp_path / "in", f"{tmp_path}/in/../*", tmp_path / "link")
    assert read(*names, format="text") == ["b/3.txt", "1.txt", "b/2.txt"]
    assert read(tmp_path / "in/0.txt", format="text") == ["b/3.txt"]


def test_what_holds_no_text_is_named_and_not_left_out(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").symlink_to("nowhere")
    for pattern in (tmp_path, tmp_path / "b.txt", tmp_path / "*"):
        with pytest.raises(UserError, match=r"b\.txt is a link to a file that does not exist"):
            read(pattern, format="text")
    (tmp_path / "b.txt").unlink()
    os.mkfifo(tmp_path / "c")
    for pattern in (tmp_path, tmp_path / "c"):
        with pytest.raises(UserError, match="/c is no file, but a pipe"):
            read(pattern, format="text")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(PermissionError, match="closed"):
        read(tmp_path, format="text")


def test_a_bucket_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"the input s3://bucket/\*\.txt is not a directory; mount"):
        read("s3://bucket/*.txt", format="text")


def test_what_is_no_file_is_known_by_what_it_holds(tmp_path):
    for version in ("1.0.0", "2.0.0"):
        store(tmp_path, "tiny_versions", text_features(), {"train": [{"text": "a"}]}, version=version)
    found = [
        find_inputs(Source((f"tfds:tiny_versions:{version}",), tfds_data_dir=str(tmp_path))).fingerprint()
        for version in ("1.0.0", "2.0.0")
    ]
    assert [part[1] for (part,) in found] == ["tiny_versions/1.0.0", "tiny_versions/2.0.0"]


def test_progress_adds_up_to_the_files(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(WIKI.encode() * 50))
    (tmp_path / "b").write_text(WIKI)
    inputs = find_inputs(Source((str(tmp_path),)))
    seen: list[int] = []
    assert len(list(inputs.documents(seen.append))) == 2 * 51
    assert sum(seen) == inputs.total_bytes


def test_no_match_names_the_pattern(tmp_path):
    with pytest.raises(UserError, match=r"no file matches .*absent\*\.txt"):
        read(tmp_path / "absent*.txt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text(WIKI)
    with pytest.raises(UserError, match=r"empty holds no files, apart from hidden ones"):
        read(tmp_path / "empty")


@pytest.mark.parametrize("form", ["text", "lines", "sentences"])
def test_files_whose_names_tell_their_format_have_it_beside_prose(tmp_path, form):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"text,n\nthree,3\n"))
    (tmp_path / "c.txt").write_text("four\n")
    documents = [item if isinstance(item, str) else item[0] for item in read(tmp_path, format=form)]
    assert documents == ["one", "two", "three", "four"]
    assert read(tmp_path / "c.txt", format="lines") == ["four"]
    (tmp_path / "a.txt").write_text('{"text": "one"}\n')
    assert read(tmp_path / "a.txt", format="jsonl") == ["one"]


def test_unclear_format_tells_the_two_choices(tmp_path):
    (tmp_path / "a.txt").write_text("Some text.\n")
    with pytest.raises(UserError, match=r"a\.txt is not clear; give --format sentences .* or jsonl"):
        read(tmp_path)
