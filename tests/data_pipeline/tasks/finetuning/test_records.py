"""Records: each form gives the fields that a person would read there, and names the line of what is wrong."""

from pathlib import Path

import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.records import read_records
from tests.data_pipeline.tasks.files import write


def read(path: Path, *columns: str) -> list[tuple[int, tuple[object, ...]]]:
    return [
        (record.place.line, tuple(record.fields[c] for c in columns))
        for record in read_records(path, columns)
    ]


def test_in_tsv_quotes_are_characters_and_only_line_feeds_end_lines(tmp_path):
    content = '\ufeffb\ta\r\n"one\t1\r\ntwo \u2028\x85\r x"\t2\n\n'
    assert read(write(tmp_path / "x.tsv", content), "a", "b") == [
        (2, ("1", '"one')),
        (3, ("2", 'two \u2028\x85\r x"')),
    ]


def test_csv_quotes_as_spreadsheets_do(tmp_path):
    content = 'text,label\r\n"a, ""b""\r\nand more",1\r\n\'c",0\n' + f'"{"x" * 2000}",1\n\n\n'
    assert read(write(tmp_path / "x.csv", content), "text", "label") == [
        (2, ('a, "b"\r\nand more', "1")),
        (4, ("'c\"", "0")),
        (5, ("x" * 2000, "1")),
    ]


def test_jsonl_is_an_object_a_line(tmp_path):
    content = '{"a": 1, "b": "x"}\n{"b": null, "a": [2]}'
    assert read(write(tmp_path / "x.jsonl", content), "a", "b") == [(1, (1, "x")), (2, ([2], None))]


def test_columns_by_number_may_have_names_that_are_numbers(tmp_path):
    without, named = write(tmp_path / "a.csv", "x,1\ny,2\n"), write(tmp_path / "b.csv", "0,1\nx,1\n")
    assert read(without, "0", "1") == [(1, ("x", "1")), (2, ("y", "2"))]
    assert read(named, "0", "1") == [(2, ("x", "1"))]
    # The first label is the number of the text's column, and the file is read for its texts alone.
    assert read(write(tmp_path / "c.csv", "x,0\ny,1\n"), "0") == [(1, ("x",)), (2, ("y",))]


def test_an_encoding_with_another_line_feed_is_refused(tmp_path):
    content = "a\tb\n1\t2\n".encode("utf-16")
    with pytest.raises(UserError, match=r"x\.tsv: the lines of utf-16 cannot be told apart"):
        list(read_records(write(tmp_path / "x.tsv", content), ["a"], "utf-16"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", "a\tb\n1\t2\n3\n", r"x\.tsv, line 3 has 1 columns; the first line names 2"),
        ("x.tsv", "a\tb\n\n1\t2\n", r"x\.tsv, line 2 is blank; delete it"),
        ("x.csv", "a,b\n\n1,2\n", r"x\.csv, line 2 is blank; delete it"),
        ("x.csv", "\na,b\n1,2\n", r"x\.csv, line 1 is blank; the first line names the columns"),
        ("x.tsv", "b\tc\n1\t2\n", r"x\.tsv has no column a; it has b, c"),
        ("x.csv", "a,b,b\n1,2,3\n", r"x\.csv has two columns named 'b'"),
        ("x.csv", "a,,\n1,2,3\n", r"x\.csv has two columns named ''"),
        ("x.tsv", "a\tb\n", r"x\.tsv has no example below its first line"),
        ("x.tsv", "", r"x\.tsv is empty"),
        ("x.csv", "\n \n", r"x\.csv is empty"),
        ("x.tsv", b"a\nfine\nbroken \xe9\n", r"x\.tsv, line 3 is not UTF-8"),
        ("x.csv", 'a,b\n1,2\n"no end,2\n3,4\n', r"x\.csv, line 3 is not CSV: unexpected end"),
        ("x.csv", "a,b\r1,2\r", r"x\.csv, line 1 is not CSV: new-line character .* unquoted field$"),
        ("x.jsonl", '{"a": 1}\n{"a": \n', r"x\.jsonl, line 2 is not JSON"),
        ("x.jsonl", '{"a": ' + "[" * 200_000, r"x\.jsonl, line 1 is not JSON: .* nested too deeply"),
        ("x.jsonl", '{"a": 1}\n[1]\n', r"x\.jsonl, line 2 is not a JSON object"),
        ("x.jsonl", '{"a": 1}\n{"b": 1}\n', r"x\.jsonl, line 2 has no column a; it has b"),
        ("x.txt", "a\n1\n", r"x\.txt has no known form; its name must end in \.tsv, \.csv or \.jsonl"),
    ],
)
def test_bad_files_are_one_line_with_the_place(tmp_path, name, content, message):
    with pytest.raises(UserError, match=message) as error:
        read(write(tmp_path / name, content), "a")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"x\.csv cannot be read: No such file or directory"):
        read(tmp_path / "x.csv", "a")
    (tmp_path / "directory.tsv").mkdir()
    with pytest.raises(UserError, match=r"directory\.tsv cannot be read: Is a directory"):
        read(tmp_path / "directory.tsv", "a")
