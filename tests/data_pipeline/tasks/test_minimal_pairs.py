"""Minimal pairs: how files are read, and what counts as right."""

import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.minimal_pairs import MinimalPair, accuracies, read_minimal_pairs
from tests.data_pipeline.tasks.files import write

LINE = '{"sentence_good": "She sat.", "sentence_bad": "Her sat.", "linguistics_term": "case", "UID": "x"}\n'
PLAIN = '{"sentence_good": "a", "sentence_bad": "b"}\n'


def test_each_file_of_a_directory_is_a_paradigm(tmp_path):
    write(tmp_path / "pronouns.jsonl", LINE)
    write(tmp_path / "letters.ndjson", PLAIN * 2)
    write(tmp_path / "README.md", "not pairs")
    assert read_minimal_pairs(tmp_path) == [
        MinimalPair("a", "b", "letters", None, 1),
        MinimalPair("a", "b", "letters", None, 2),
        MinimalPair("She sat.", "Her sat.", "pronouns", "case", 1),
    ]
    assert read_minimal_pairs(tmp_path / "pronouns.jsonl") == read_minimal_pairs(tmp_path)[2:]


def test_the_accuracy_is_the_mean_over_paradigms_and_a_tie_is_wrong():
    members = [("x", "one"), ("x", "one"), ("x", "one"), ("x", "one"), ("y", "one"), ("z", None)]
    pairs = [MinimalPair("a", "b", paradigm, phenomenon, 1) for paradigm, phenomenon in members]
    scores = [(-1.0, -2.0), (-1.0, -1.0), (-3.0, -2.0), (-2.0, -3.0), (-1.0, -2.0), (-9.0, -8.0)]
    assert accuracies(pairs, scores) == {
        "accuracy": 0.5,
        "phenomena": {"one": 0.75},
        "paradigms": {"x": 0.5, "y": 1.0, "z": 0.0},
        "pairs": 6,
        "ties": 1,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"sentence_good": "a"}\n', r"line 1 has no column sentence_bad; it has sentence_good"),
        (PLAIN + '{"sentence_good": "a", "sentence_bad": ""}\n', r"line 2: sentence_bad is empty"),
        ('{"sentence_good": 3, "sentence_bad": "b"}\n', r"line 1: sentence_good is 3; it must be text"),
        (PLAIN.replace("}", ', "linguistics_term": 1}'), r"linguistics_term is 1; it must be text"),
        ("", r"pairs\.jsonl is empty"),
        ("a\tb\n", r"line 1 is not JSON"),
    ],
)
def test_bad_files_are_one_line_with_the_place(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_minimal_pairs(write(tmp_path / "pairs.jsonl", content))


def test_paths_without_pairs_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no file that ends in \.jsonl or \.ndjson"):
        read_minimal_pairs(tmp_path)
    with pytest.raises(UserError, match=r"x\.txt is neither a directory nor a file that ends in \.jsonl or "):
        read_minimal_pairs(write(tmp_path / "x.txt", PLAIN))
    with pytest.raises(UserError, match=r"gone\.jsonl cannot be read: No such file"):
        read_minimal_pairs(tmp_path / "gone.jsonl")
