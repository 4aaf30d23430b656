"""Readers: each format gives the documents that a person would say are there."""

import bz2
import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from data_pipeline.errors import UserError
from data_pipeline.preparing import cutting, readers
from data_pipeline.preparing.inputs import Source, find_inputs
from tests.data_pipeline.preparing.read_inputs import WIKI, WIKI_DOCUMENTS, read
from tests.data_pipeline.tiny_tfds import store, table_features, text_features


def test_sentences_are_lines_and_blank_lines_part_documents(tmp_path):
    (tmp_path / "a.txt").write_text("\n\nOne.\n Two. \r\n\n   \nThree.")
    assert read(tmp_path / "a.txt", format="sentences") == [["One.", "Two."], ["Three."]]


def test_text_joins_wrapped_lines_into_paragraphs(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffOne line\nand its end.\n\n\nNext.\n", encoding="utf-8")
    assert read(tmp_path / "a.txt", format="text") == ["One line and its end.\nNext."]


def test_wikiextractor_drops_titles_and_empty_articles(tmp_path):
    (tmp_path / "wiki_00").write_text(WIKI)
    assert read(tmp_path / "wiki_00") == WIKI_DOCUMENTS


def test_wikiextractors_tags_may_share_a_line_with_text_and_lack_an_end(tmp_path):
    lines = [
        '<doc id="1" title="A">A',
        "One.",
        '<doc id="2" title="B">',
        "Two.</doc>",
        "",
        "<doc>Three.",
    ]
    (tmp_path / "wiki_00").write_text("\n".join(lines))
    assert read(tmp_path / "wiki_00") == ["One.", "Two.", "Three."]


def test_wikiextractor_text_outside_of_documents_is_refused(tmp_path):
    (tmp_path / "wiki_00").write_text(f"{WIKI}outside\n")
    number = WIKI.count("\n") + 1
    with pytest.raises(UserError, match=rf"wiki_00, line {number} is outside of <doc"):
        read(tmp_path / "wiki_00")


@pytest.mark.parametrize("title", ['"Weird Al" Yankovic', "Foo > Bar", '5" floppy', "A &amp; B"])
def test_wikiextractor_titles_are_not_escaped(tmp_path, title):
    text = f'<doc id="1" url="u" title="{title}">\n{title}\n\nText.\n</doc>\n'
    (tmp_path / "wiki_00").write_text(text)
    assert read(tmp_path / "wiki_00") == ["Text."]


def test_an_archive_is_refused(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"a\.tar\.gz is an archive; unpack it"):
        read(tmp_path / "a.tar.gz", format="text")


def test_suffixes_may_be_in_capitals(tmp_path):
    (tmp_path / "A.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "one"}\n'))
    assert read(tmp_path / "A.JSONL.GZ", format="lines") == ["one"]


@pytest.mark.parametrize("form", ["text", "lines", "sentences", "tsv"])
def test_carriage_returns_alone_end_no_line(tmp_path, form):
    (tmp_path / "a.txt").write_bytes(b"text\rOne.\rTwo.\r")
    with pytest.raises(UserError, match=r"a\.txt has carriage returns for line ends"):
        read(tmp_path / "a.txt", format=form)


def test_jsonl_takes_the_named_field(tmp_path):
    rows = [{"text": "a", "body": "One.\n\nTwo."}, {"body": ""}, {"body": None}, {"body": "Ü."}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    assert read(tmp_path / "a.jsonl", text_field="body") == ["One.\nTwo.", "Ü."]


def test_jsonl_shows_itself_whatever_its_name(tmp_path):
    with gzip.open(tmp_path / "c4-train.00000.json.gz", "wt") as file:
        file.write('\n{"text": "One."}\n')
    assert read(tmp_path / "c4-train.00000.json.gz") == ["One."]
    (tmp_path / "a.txt").write_text("{no JSON\n")
    with pytest.raises(UserError, match="not clear"):
        read(tmp_path / "a.txt")


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst"])
def test_a_first_line_that_is_too_long_tells_no_format(tmp_path, monkeypatch, suffix):
    """The line may be a whole file that does not fit into memory."""
    compress = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}[suffix]
    (tmp_path / f"a.json{suffix}").write_bytes(compress(b'\n{"text": "One."}'))
    assert read(tmp_path) == ["One."]
    monkeypatch.setattr(readers, "_LONGEST_FIRST_LINE", 15)
    with pytest.raises(UserError, match="not clear; give --format"):
        read(tmp_path)


def test_lines_are_documents(tmp_path):
    (tmp_path / "a.txt").write_text("One. Two.\n\n Three.\r\n")
    assert read(tmp_path / "a.txt", format="lines") == ["One. Two.", "Three."]


def test_a_column_of_a_table_holds_documents(tmp_path):
    (tmp_path / "a.tsv").write_text('\ufeffid\ttext\r\n1\t"One" of two\r\n\n2\t\r\n3\tThree\r\n')
    assert read(tmp_path / "a.tsv") == ['"One" of two', "Three"]
    (tmp_path / "a.csv").write_text('id,body\n1,"One, ""two"".\n\nNext."\n2,Three\n')
    assert read(tmp_path / "a.csv", text_field="body") == ['One, "two".\nNext.', "Three"]
    columns = {"id": [1, 2, 3, 4], "body": ["One.", None, " ", "Four.\n\nFive."]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", text_field="body") == ["One.", "Four.\nFive."]


def test_all_of_a_parquet_file_is_told(tmp_path):
    table = pyarrow.table({"text": ["a word"] * 5000})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    heard = []
    documents = find_inputs(Source((str(tmp_path / "a.parquet"),))).documents(heard.append)
    assert len(list(documents)) == 5000
    assert sum(heard) == pytest.approx((tmp_path / "a.parquet").stat().st_size, abs=len(heard))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"\n\n", r"a\.csv has no lines; the first must name the columns"),
        ("a.tsv", b"id\tbody\n", r"a\.tsv has no column text \(--text-field\); it has id, body"),
        ("a.tsv", b"text\tid\n\n1\t2\n\n1\n", r"a\.tsv, row 5 has 1 columns instead of 2"),
        ("a.csv", b"text,id\n\n1,2\n1\n", r"a\.csv, row 4 has 1 columns instead of 2"),
        ("a.csv", b"text,id\n1,2\n1\n", r"a\.csv, row 3 has 1 columns instead of 2"),
        ("a.csv", b'text\n"one\n', r"a\.csv, line 2 is not CSV: unexpected end of data"),
        ("a.csv", b"text\rone\rtwo\r", r"a\.csv has carriage returns for line ends"),
        ("a.csv", b"text,text\n1,2\n", r"a\.csv has two columns named text; rename one"),
        ("a.parquet", b"PAR1 no parquet", r"a\.parquet is no whole Parquet file"),
    ],
)
def test_a_faulty_table_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / name)


def test_a_parquet_column_whose_name_is_not_utf8_is_named(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"name": ["a"]}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content.replace(b"name", b"n\xe4me"))
    with pytest.raises(UserError, match=r"a\.parquet is no whole Parquet file: .*utf-8"):
        read(tmp_path / "a.parquet", text_field="name")


def test_parquet_texts_that_are_not_utf8_are_named(tmp_path):
    buffers = pyarrow.array([None, "ü", b"caf\xe9"], pyarrow.binary()).buffers()
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 3, buffers)  # which does not validate them
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    with pytest.raises(
        UserError, match=r"a\.parquet, row 3 is not UTF-8; go on with --encoding-errors replace"
    ):
        read(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", encoding_errors="replace") == ["ü", "caf\ufffd"]


def test_memory_does_not_grow_with_a_parquet_file(tmp_path):
    """Of 32 row groups of 1 MiB, a few are held at a time."""
    texts = pyarrow.table({"text": [os.urandom(512).hex() for _ in range(1024)]})
    with pyarrow.parquet.ParquetWriter(
        tmp_path / "a.parquet", texts.schema, compression="none", use_dictionary=False
    ) as file:
        for _ in range(32):
            file.write_table(texts)
    documents = find_inputs(Source((str(tmp_path / "a.parquet"),))).documents()
    tracemalloc.start()  # pyarrow keeps what it read as Python bytes, so tracemalloc sees it
    try:
        assert max(tracemalloc.get_traced_memory()[0] for _ in documents) < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_parquet_file_that_is_gone_is_not_called_damaged(tmp_path):
    """If it were, `prepare` would discard what it has made from the other files."""
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a word"]}), tmp_path / "a.parquet")
    inputs = find_inputs(Source((str(tmp_path / "a.parquet"),)))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.parquet"):
        next(inputs.documents())


def test_a_parquet_column_must_be_text(tmp_path):
    columns = {"text": [1], "title": ["a"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"no column of text text \(--text-field\); it has title"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()], ids=str)
def test_every_kind_of_parquet_text_is_read(tmp_path, kind):
    table = pyarrow.table({"text": pyarrow.array(["a", None, "ü"], kind)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ["a", "ü"]


def test_long_documents_are_cut_between_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(cutting, "LONGEST_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("12345\n67890\nabc\n")
    assert read(tmp_path / "a.txt", format="sentences") == [["12345", "67890"], ["abc"]]
    (tmp_path / "a.txt").write_text("12345\n\n67890\n\nabc\n")
    assert read(tmp_path / "a.txt", format="text") == ["12345\n67890", "abc"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "12345\n67890\nabc"}))
    assert read(tmp_path / "a.jsonl") == ["12345\n67890", "abc"]


def test_lines_longer_than_a_document_are_cut_at_blanks(tmp_path, monkeypatch):
    monkeypatch.setattr(cutting, "LONGEST_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("abc def gh ijklmnopqrstuvwx yz\n")
    pieces = ["abc def gh", "ijklmnopqr", "stuvwx yz"]
    assert read(tmp_path / "a.txt", format="sentences") == [[piece] for piece in pieces]
    assert read(tmp_path / "a.txt", format="text") == pieces
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "abc def gh ijklmnopqrstuvwx yz"}))
    assert read(tmp_path / "a.jsonl") == pieces


def test_half_a_surrogate_pair_can_be_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"text": "a \ud800 b \ud83d\ude00"}')
    assert read(tmp_path / "a.jsonl", encoding_errors="replace") == ["a \ufffd b 😀"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', r"a\.jsonl, line 2 is not JSON"),
        ('["text"]', r"a\.jsonl, line 2 is not a JSON object"),
        ('{"text": "fine", "m": ' + "[" * 200_000, r"a\.jsonl, line 2 is not JSON: .* nested too deeply"),
        (r'{"text": "a \ud800 b"}', r"a\.jsonl, line 2 holds half of a surrogate pair; .*replace"),
        ('{"body": 1}', r"a\.jsonl, line 2 has no text in the field text; .*: body"),
        ('{"text": 12}', r"a\.jsonl, line 2: text is 12; it must be text"),
    ],
)
def test_malformed_jsonl_names_file_and_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.jsonl")


def test_tfds_that_cannot_be_had_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"tfds:no_such_set is not available .*--tfds-data-dir"):
        read("tfds:no_such_set", tfds_data_dir=str(tmp_path))


def test_tfds_reads_a_data_set_on_disk(tmp_path):
    texts = ["Vier ü.", "One. Two.\nThree."]
    store(tmp_path, "tiny_text", text_features(), {"train": [{"text": text} for text in texts]})
    assert read("tfds:tiny_text", tfds_data_dir=str(tmp_path)) == texts
    with pytest.raises(UserError, match=r"has no field body of text \(--text-field\); it has text"):
        read("tfds:tiny_text", tfds_data_dir=str(tmp_path), text_field="body")


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
    with pytest.raises(UserError, match=r"has no field label of text \(--text-field\); it has text$"):
        read("tfds:tiny_table", tfds_data_dir=str(tmp_path), text_field="label")
