"""Ranking: training rows of two or three texts, and evaluation that encodes each text once."""

import json

import pytest

from data_pipeline.errors import UserError
from data_pipeline.tasks.ranking import encode_queries, ranking_rows, read_queries, read_ranking
from tests.data_pipeline.tasks.files import write
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer, pieces

QUERIES = "query_id\tquery\tcandidate\trelevance\n1\tq\ta\t0\n1\tq\tb\t2\n2\tr\tb\t1\n2\tr\tc\t0\n"


@pytest.mark.parametrize("negative", [[], ["no"]])
def test_a_row_has_query_positive_and_perhaps_negative(tmp_path, negative):
    file = write(tmp_path / "x.csv", "ask,yes,no\na,b,c\nd,e,f\n")
    examples = read_ranking(file, ["ask", "yes", *negative])
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    rows = ranking_rows(examples, tokenizer, 8)
    expected = ["a", "b", "c", "d", "e", "f"] if negative else ["a", "b", "d", "e"]
    assert [pieces(tokenizer, ids) for ids in rows.tokens["input_ids"]] == [
        f"[CLS] {text} [SEP]" for text in expected
    ]
    assert rows.sequences_per_row == len(expected) // 2
    assert len(rows) == 2


def test_each_text_of_an_evaluation_is_encoded_once(tmp_path):
    queries = read_queries(write(tmp_path / "x.tsv", QUERIES))
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    encoded = encode_queries(queries, tokenizer, 8)
    texts = [pieces(tokenizer, ids[1:-1]) for ids in encoded.rows.tokens["input_ids"]]
    assert sorted(texts) == ["a", "b", "c", "q", "r"]
    assert [texts[row] for row in encoded.query_rows] == ["q", "r"]
    assert [[texts[row] for row in rows] for rows in encoded.candidate_rows] == [["a", "b"], ["b", "c"]]
    assert [relevance.tolist() for relevance in encoded.relevance] == [[0, 2], [1, 0]]


def test_json_queries_are_those_of_the_table(tmp_path):
    lines = [
        {"query": "q", "candidates": ["a", "b"], "relevance": [0, 2]},
        {"query": "r", "candidates": ["b", "c"], "relevance": [1.0, 0]},
    ]
    file = write(tmp_path / "x.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    table = read_queries(write(tmp_path / "x.tsv", QUERIES))
    for query, expected in zip(read_queries(file), table, strict=True):
        assert (query.query, query.candidates, query.relevance) == (
            expected.query,
            expected.candidates,
            expected.relevance,
        )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1\tq\ta\t0\n2\tr\tb\t1\n2\tr\tc\t1\n", r"line 2: 'q' has one candidate"),
        ("1\tq\ta\t0\n1\tq\tb\t0\n2\tr\ta\t0\n2\tr\tb\t0\n1\tq\tc\t0\n", r"line 6: query_id 1 came before"),
        ("1\tq\ta\thigh\n1\tq\tb\t0\n", r"line 2 has the relevance 'high'; it must be a number of 0 or more"),
        ("1\tq\ta\t0\n1\tq\tb\t-1\n", r"line 3 has the relevance '-1'"),
        ("1\tq\ta\t0\n1\tq\tb\t1e39\n", r"line 3 has the relevance '1e39'"),
        ("1\tq\ta\t0\n1\tq\tb\t1_5\n", r"line 3 has the relevance '1_5'"),
        ("1\tq\t \t0\n1\tq\tb\t1\n", r"line 2: candidate is empty"),
        ("1\tq\ta\t0\n1\tr\tb\t1\n", r"line 3: query_id 1 has another query than at .*, line 2"),
    ],
)
def test_bad_rows_are_named(tmp_path, rows, message):
    with pytest.raises(UserError, match=message):
        read_queries(write(tmp_path / "x.tsv", f"query_id\tquery\tcandidate\trelevance\n{rows}"))


def test_a_table_may_have_a_column_named_candidates(tmp_path):
    rows = "1\tq\ta\t0\tx\n1\tq\tb\t2\ty\n"
    file = write(tmp_path / "x.tsv", f"query_id\tquery\tcandidate\trelevance\tcandidates\n{rows}")
    [query] = read_queries(file)
    assert (query.candidates, query.relevance) == (("a", "b"), (0, 2))


@pytest.mark.parametrize(
    ("relevance", "message"),
    [
        ([1], "relevance must be a list of 2, one a candidate"),
        (1, "relevance must be a list of 2, one a candidate"),
        ([1, None], "has the relevance None"),
    ],
)
def test_bad_relevance_of_json_is_named(tmp_path, relevance, message):
    line = json.dumps({"query": "q", "candidates": ["a", "b"], "relevance": relevance})
    with pytest.raises(UserError, match=f"line 1.*{message}"):
        read_queries(write(tmp_path / "x.jsonl", line))
