"""Readers: each format gives the documents that a person would say are there."""

import json
from pathlib import Path

import pytest

from data_pipeline import cutting
from data_pipeline.errors import UserError
from tests.data_pipeline.read_inputs import WIKI, WIKI_DOCUMENTS, read
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


def test_jsonl_takes_the_named_field(tmp_path):
    rows = [{"text": "a", "body": "One.\n\nTwo."}, {"body": ""}, {"body": "Ü."}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    assert read(tmp_path / "a.jsonl", text_field="body") == ["One.\nTwo.", "Ü."]


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
        (r'{"text": "a \ud800 b"}', r"a\.jsonl, line 2 holds half of a surrogate pair; .*replace"),
        ('{"body": 1}', r"a\.jsonl, line 2 has no text in the field text; .*: body"),
    ],
)
def test_malformed_jsonl_names_file_and_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.jsonl")


def test_tfds_that_cannot_be_had_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"tfds:no_such_set cannot be had .*--tfds-data-dir"):
        read("tfds:no_such_set", tfds_data_dir=str(tmp_path))


def test_tfds_reads_a_data_set_on_disk(tmp_path):
    texts = ["Vier ü.", "One. Two.\nThree."]
    store(tmp_path, "tiny_text", text_features(), {"train": [{"text": text} for text in texts]})
    assert read("tfds:tiny_text", tfds_data_dir=str(tmp_path)) == texts
    with pytest.raises(UserError, match=r"has no text in the field body; --text-field is one of text"):
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
    with pytest.raises(UserError, match=r"has no text in the field label; --text-field is one of text$"):
        read("tfds:tiny_table", tfds_data_dir=str(tmp_path), text_field="label")
