"""Readers: each format gives the documents that a person would say are there."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
from pathlib import Path

import pytest
import zstandard

from data_pipeline import readers
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.readers import Source, find_inputs
from data_pipeline.sentences import check_language, split_sentences
from tests.data_pipeline.tiny_tfds import store, table_features, text_features

WIKI = """<doc id="1" url="u" title="Salt &amp; Pepper">
Salt &amp; Pepper

Salt is white. It is old &lt;sic&gt;.
Pepper is black.

</doc>
<doc id="2" url="u" title="Empty">
Empty

</doc>
<doc id="3" url="u" title="Other">
Not the title.
</doc>
"""
WIKI_DOCUMENTS = ["Salt is white. It is old <sic>.\nPepper is black.", "Not the title."]


def read(*inputs: object, **settings: str) -> list[readers.Document]:
    source = Source(tuple(map(str, inputs)), **settings)
    return list(find_inputs(source).documents())


def test_sentences_are_lines_and_blank_lines_part_documents(tmp_path):
    (tmp_path / "a.txt").write_text("\n\nOne.\n Two. \r\n\n   \nThree.")
    assert read(tmp_path / "a.txt", format="sentences") == [["One.", "Two."], ["Three."]]


def test_text_joins_wrapped_lines_into_paragraphs(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffOne line\nand its end.\n\n\nNext.\n", encoding="utf-8")
    assert read(tmp_path / "a.txt", format="text") == ["One line and its end.\nNext."]


def test_wikiextractor_drops_titles_and_empty_articles(tmp_path):
    (tmp_path / "wiki_00").write_text(WIKI)
    assert read(tmp_path / "wiki_00") == WIKI_DOCUMENTS


def test_jsonl_takes_the_named_field(tmp_path):
    rows = [{"text": "a", "body": "One.\n\nTwo."}, {"body": ""}, {"body": "Ü."}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    assert read(tmp_path / "a.jsonl", text_field="body") == ["One.\nTwo.", "Ü."]


def test_reads_compressed_files(tmp_path):
    (tmp_path / "b.gz").write_bytes(gzip.compress(WIKI.encode()))
    half = len(WIKI) // 2
    frames = [zstandard.compress(part.encode()) for part in (WIKI[:half], WIKI[half:])]
    (tmp_path / "c.zst").write_bytes(b"".join(frames))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n'))
    (tmp_path / "e.bz2").write_bytes(bz2.compress(WIKI.encode()))
    (tmp_path / "f.xz").write_bytes(lzma.compress(WIKI.encode()))
    assert read(tmp_path) == [*WIKI_DOCUMENTS, *WIKI_DOCUMENTS, "x", *WIKI_DOCUMENTS, *WIKI_DOCUMENTS]


def test_folders_and_globs_are_walked_in_order_without_hidden_files(tmp_path):
    for name in ("b/2.txt", "b/1.txt", "a/3.txt", ".hidden/x.txt", "a/.x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    assert read(tmp_path, format="text") == ["a/3.txt", "b/1.txt", "b/2.txt"]
    assert read(f"{tmp_path}/*/[12].txt", format="text") == ["b/1.txt", "b/2.txt"]
    assert read(f"{tmp_path}/[ab]*", format="text") == ["a/3.txt", "b/1.txt", "b/2.txt"]
    assert read(f"{tmp_path}/**", format="text") == ["a/3.txt", "b/1.txt", "b/2.txt"]


def test_linked_folders_are_walked_once(tmp_path):
    for name in ("in/b/1.txt", "elsewhere/2.txt", "elsewhere/more/3.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    links = {"a": "in/b", "c": "elsewhere", "d": "elsewhere/more", "b/loop": "in", "gone": "nowhere"}
    for name, target in links.items():
        (tmp_path / "in" / name).symlink_to(tmp_path / target)
    assert read(tmp_path / "in", format="text") == ["in/b/1.txt", "elsewhere/2.txt", "elsewhere/more/3.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(PermissionError, match="closed"):
        read(tmp_path, format="text")


def test_a_bucket_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"the input s3://bucket/\*\.txt is not a folder; mount"):
        read("s3://bucket/*.txt", format="text")


def test_what_is_no_file_is_known_by_what_it_holds(tmp_path):
    for version in ("1.0.0", "2.0.0"):
        store(tmp_path, "tiny_versions", text_features(), {"train": [{"text": "a"}]}, version=version)
    found = [
        find_inputs(Source((f"tfds:tiny_versions:{version}",), tfds_data_dir=str(tmp_path))).fingerprint()
        for version in ("1.0.0", "2.0.0")
    ]
    assert [part[1] for (part,) in found] == ["tiny_versions/1.0.0", "tiny_versions/2.0.0"]


def test_long_documents_are_cut_between_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LONGEST_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("12345\n67890\nabc\n")
    assert read(tmp_path / "a.txt", format="sentences") == [["12345", "67890"], ["abc"]]
    (tmp_path / "a.txt").write_text("12345\n\n67890\n\nabc\n")
    assert read(tmp_path / "a.txt", format="text") == ["12345\n67890", "abc"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "12345\n67890\nabc"}))
    assert read(tmp_path / "a.jsonl") == ["12345\n67890", "abc"]


def test_lines_longer_than_a_document_are_cut_at_blanks(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LONGEST_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("abc def gh ijklmnopqrstuvwx yz\n")
    pieces = ["abc def gh", "ijklmnopqr", "stuvwx yz"]
    assert read(tmp_path / "a.txt", format="sentences") == [[piece] for piece in pieces]
    assert read(tmp_path / "a.txt", format="text") == pieces
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "abc def gh ijklmnopqrstuvwx yz"}))
    assert read(tmp_path / "a.jsonl") == pieces


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
    with pytest.raises(UserError, match=r"no file matches .*empty"):
        read(tmp_path / "empty")


def test_unclear_format_tells_the_two_choices(tmp_path):
    (tmp_path / "a.txt").write_text("Some text.\n")
    with pytest.raises(UserError, match=r"a\.txt is not clear; give --format sentences .* --format text"):
        read(tmp_path)


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    (tmp_path / "a.txt").write_bytes("Ü.\nok\n".encode() + b"na\xefve\n")
    with pytest.raises(UserError, match=r"a\.txt is not UTF-8 at byte 9; .*--encoding-errors replace"):
        read(tmp_path / "a.txt", format="sentences")
    replaced = read(tmp_path / "a.txt", format="sentences", encoding_errors="replace")
    assert replaced == [["Ü.", "ok", "na\ufffdve"]]


def test_half_a_surrogate_pair_can_be_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"text": "a \ud800 b \ud83d\ude00"}')
    assert read(tmp_path / "a.jsonl", encoding_errors="replace") == ["a \ufffd b 😀"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', r"a\.jsonl, line 2 is not JSON"),
        ('["text"]', r"a\.jsonl, line 2 is not a JSON object"),
        (r'{"text": "a \ud800 b"}', r"a\.jsonl, line 2 holds half of a surrogate pair; .*replace"),
        ('{"body": 1}', r"a\.jsonl, line 2 has no text in the field text; .*: body"),
    ],
)
def test_malformed_jsonl_names_file_and_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.jsonl")


COMPRESSIONS = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damaged_compressed_files_are_named(tmp_path, suffix):
    whole = COMPRESSIONS[suffix](WIKI.encode() * 100)
    (tmp_path / f"a.{suffix}").write_bytes(b"garbage" + whole)
    with pytest.raises(UserError, match=rf"a\.{suffix} cannot be read"):
        read(tmp_path, format="wikiextractor")


def test_a_disk_that_cannot_be_read_is_no_fault_of_the_file():
    class Disk(io.BytesIO):
        def __next__(self) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(Unfinished, match=r"a\.txt cannot be read after byte 0: .*; run the same"):
        next(readers._lines(Path("a.txt"), Disk(), "strict"))


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_truncated_compressed_files_are_named(suffix, tmp_path):
    whole = COMPRESSIONS[suffix](WIKI.encode())
    (tmp_path / f"a.{suffix}").write_bytes(whole + whole[:-20])
    with pytest.raises(UserError, match=rf"a\.{suffix} cannot be read after byte \d+: .*end"):
        read(tmp_path, format="wikiextractor")


def test_tfds_that_cannot_be_had_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"tfds:no_such_set cannot be had .*--tfds-data-dir"):
        read("tfds:no_such_set", tfds_data_dir=str(tmp_path))


def test_tfds_reads_a_data_set_on_disk(tmp_path):
    texts = ["Vier ü.", "One. Two.\nThree."]
    store(tmp_path, "tiny_text", text_features(), {"train": [{"text": text} for text in texts]})
    assert read("tfds:tiny_text", tfds_data_dir=str(tmp_path)) == texts
    with pytest.raises(UserError, match=r"has no text in the field body; --text-field is one of text"):
        read("tfds:tiny_text", tfds_data_dir=str(tmp_path), text_field="body")


def test_sentences_are_split_by_language_and_never_across_lines():
    assert split_sentences("Mr. Smith left. He ran.\nNo stop here\n\nBye.", "en") == [
        "Mr. Smith left.",
        "He ran.",
        "No stop here",
        "Bye.",
    ]
    assert split_sentences("你好。他来了吗?是。", "zh") == ["你好。", "他来了吗?", "是。"]
    assert split_sentences(["a. b.", "c"], "en") == ["a. b.", "c"]


def test_language_must_look_like_a_code():
    check_language("pt-br")
    with pytest.raises(UserError, match=r"--language is 'English'; it must be a code"):
        check_language("English")


def test_a_file_of_nothing_gives_nothing(tmp_path: Path):
    (tmp_path / "a.txt").write_text(" \n\n")
    assert read(tmp_path / "a.txt", format="text") == []


def test_tfds_texts_that_cannot_be_read_are_named(tmp_path):
    examples = [{"text": "fine", "label": "a"}, {"text": b"caf\xe9", "label": "a"}]
    store(tmp_path, "tiny_table", table_features(["a"]), {"train": examples})
    with pytest.raises(UserError, match=r"tfds:tiny_table, example 2 is not UTF-8; .*replace"):
        read("tfds:tiny_table", tfds_data_dir=str(tmp_path))
    replaced = read("tfds:tiny_table", tfds_data_dir=str(tmp_path), encoding_errors="replace")
    assert replaced == ["fine", "caf\ufffd"]
    with pytest.raises(UserError, match=r"has no text in the field label; --text-field is one of text$"):
        read("tfds:tiny_table", tfds_data_dir=str(tmp_path), text_field="label")
