"""What a finished ranking leaves: every candidate in order on disk, the best answers on the terminal."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from bert_jax.tasks.finetuning.results import print_examples
from bert_jax.tasks.ranking import RankingData, Settings
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.ranking import encode_queries, ranking_rows, read_queries, read_ranking
from tests.data_pipeline.tasks.small_tokenizer import make_tokenizer, read_model_tokenizer

NO_NEGATIVE = "--loss triplet needs --negative-column: .*train.tsv has no negative"
JUDGED = [("a b", "b", 0), ("a b", "a", 2), ("a b", "c [x]", 0), ("c", "a", 0), ("c", "c", 1)]


def test_the_best_answers_are_shown_and_all_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "train.tsv").write_text("query\tpositive\na\tb\n")
    lines = [f"{query}\t{query}\t{text}\t{value}\n" for query, text, value in JUDGED]
    (tmp_path / "dev.tsv").write_text("query_id\tquery\tcandidate\trelevance\n" + "".join(lines))
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    queries = read_queries(tmp_path / "dev.tsv")
    encoded = encode_queries(queries, tokenizer, 8)
    train = ranking_rows(read_ranking(tmp_path / "train.tsv", ["query", "positive"]), tokenizer, 8)
    data = RankingData(train, {"dev": encoded})

    def count_pieces(rows: Rows):  # type: ignore[no-untyped-def]
        """Encodes a text as the unit vector of its piece counts."""
        counts = np.array([np.bincount(ids[1:-1], minlength=99) for ids in rows.tokens["input_ids"]])
        yield np.arange(len(rows)), counts / np.linalg.norm(counts, axis=1, keepdims=True)

    outcome = data.finish(count_pieces, tmp_path)
    first, second = map(json.loads, (tmp_path / "predictions-dev.jsonl").read_text().splitlines())
    assert [one["candidate"] for one in first["ranked"]] == ["b", "a", "c [x]"]
    assert [one["relevance"] for one in first["ranked"]] == [0, 2, 0]
    assert second["ranked"][0] == {"candidate": "c", "score": 1.0, "relevance": 1.0}
    assert outcome.metrics["mrr"] == pytest.approx((1 / 2 + 1) / 2)
    print_examples(outcome.examples)
    shown = capsys.readouterr().out
    assert "c [x]" in shown
    assert [line.split("│")[1].strip() for line in shown.splitlines() if "│" in line][::3] == ["a b", "c"]
    assert max(map(len, shown.splitlines())) <= 80


def test_a_column_of_negatives_is_used_without_being_named(tmp_path: Path) -> None:
    def load(loss: Literal["in_batch", "triplet"], train: str) -> int:
        (tmp_path / "train.tsv").write_text(train)
        return Settings(loss=loss).load("rank", str(tmp_path), tokenizer).train.sequences_per_row

    (tmp_path / "dev.tsv").write_text("query_id\tquery\tcandidate\trelevance\n1\ta\tb\t1\n1\ta\tc\t0\n")
    tokenizer = read_model_tokenizer(tmp_path / "tokenizer")
    assert load("in_batch", "query\tpositive\na\tb\n") == 2
    assert load("in_batch", "query\tpositive\tnegative\na\tb\tc\n") == 3
    assert load("triplet", "query\tpositive\tnegative\na\tb\tc\n") == 3
    with pytest.raises(UserError, match=NO_NEGATIVE):
        load("triplet", "query\tpositive\na\tb\n")
