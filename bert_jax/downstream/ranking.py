"""Ranking: puts a query's candidates in order of the cosine of their embeddings with the query's."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.downstream.outputs import outputs_of, write_lines
from bert_jax.downstream.predict_records import RecordForm, check_whole
from bert_jax.downstream.task_data import AppliedModel, Apply, Outcome, Prediction, join_figures
from bert_jax.finetuning.config import HeadKind
from bert_jax.names import RankingLoss
from data_pipeline.errors import UserError
from data_pipeline.tasks.parts import find_part, require_part

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from data_pipeline.tasks.ranking import EncodedQueries, RankingQuery
    from data_pipeline.tasks.records import Record
    from data_pipeline.tasks.rows import Rows

_NEGATIVE = "negative"
# Enough for full batches of similar length, few enough to hold in memory.
_CANDIDATES_AT_ONCE = 4096

# Sizes of the table of examples on the terminal.
_QUERIES_SHOWN, _ANSWERS_SHOWN = 3, 3


@dataclasses.dataclass(frozen=True)
class RankingSettings:
    """A folder with train (columns query, positive, optionally negative), dev and optionally test (query_id,
    query, candidate, relevance), each .tsv, .csv or .jsonl. In JSONL, dev and test have the fields query,
    candidates, relevance. Test may be without relevance."""

    max_seq_length: int = 128
    """Most tokens of each text; longer ones are cut."""
    loss: RankingLoss = "in_batch"
    """in_batch: the texts of a batch's other rows are negatives too. triplet: needs negatives."""
    query_column: str = "query"
    """Column of train, or field of JSONL, with the query."""
    positive_column: str = "positive"
    """Column of train with a text that answers the query."""
    negative_column: str | None = None
    """Column of train with a text that does not; by default "negative", if there is such a column."""

    def load(self, task: str, data: str, tokenizer: "Tokenizer") -> "RankingData":
        """Reads and encodes train, dev, and test if there is one."""
        from data_pipeline.tasks.encode import make_task_tokenizer
        from data_pipeline.tasks.ranking import (
            encode_queries,
            ranking_rows,
            read_queries,
            read_ranking,
            read_test_queries,
        )

        del task
        folder, plain = Path(data), make_task_tokenizer(tokenizer)
        train_file = require_part(folder, "train")
        negative = self.negative_column or _default_negative(train_file)
        if self.loss == "triplet" and negative is None:
            raise UserError(f"--loss triplet needs --negative-column: {train_file} has no {_NEGATIVE}")
        train = read_ranking(train_file, self.query_column, self.positive_column, negative)
        parts = {"dev": read_queries(require_part(folder, "dev"))}
        if file := find_part(folder, "test"):
            parts["test"] = read_test_queries(file)
        return RankingData(
            "triplet_ranking" if self.loss == "triplet" else "in_batch_ranking",
            ranking_rows(train, plain, self.max_seq_length),
            parts,
            {name: encode_queries(part, plain, self.max_seq_length) for name, part in parts.items()},
        )

    def predict_file(self, job: Prediction) -> int:
        """Predicts queries with candidates in the form of dev; relevance is not needed.

        Rows of a table are written with their rank and score, the best candidate of each query first.
        """
        from data_pipeline.tasks.ranking import read_candidates, split_queries

        form = RecordForm(job.input)
        count = 0

        def read() -> "Iterator[tuple[list[Record], RankingQuery]]":
            for records in split_queries(job.input):
                form.check(records[0])
                yield records, read_candidates(records)

        def parts() -> Iterator[list[str]]:
            nonlocal count
            for part in parts_of(check_whole(read)):
                scores = self._score([query for _, query in part], job.model)
                for (records, query), row in zip(part, scores, strict=True):
                    yield form.lines(*order(records, query, row))
                count += len(part)

        job.write_text(parts())
        return count

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"query", "candidates"}."""
        from data_pipeline.tasks.ranking import QUERY_FIELDS, read_candidates
        from data_pipeline.tasks.records import as_records

        queries = [read_candidates([record]) for record in as_records(examples, QUERY_FIELDS)]
        pairs = zip(queries, self._score(queries, model), strict=True)
        return [{"ranked": describe(query, scores)["ranked"]} for query, scores in pairs]

    def _score(self, queries: "Sequence[RankingQuery]", model: AppliedModel) -> list[np.ndarray]:
        from data_pipeline.tasks.ranking import encode_queries

        encoded = encode_queries(queries, model.plain_tokenizer, self.max_seq_length)
        return similarities(encoded, model.apply)


def parts_of(
    queries: "Iterator[tuple[list[Record], RankingQuery]]",
) -> "Iterator[list[tuple[list[Record], RankingQuery]]]":
    """Parts of a file with a limited number of candidates; a query with its records is never split."""
    part: list[tuple[list[Record], RankingQuery]] = []
    size = 0
    for records, query in queries:
        if part and size + len(query.candidates) > _CANDIDATES_AT_ONCE:
            yield part
            part, size = [], 0
        part.append((records, query))
        size += len(query.candidates)
    yield part


def _default_negative(file: Path) -> str | None:
    """The field `negative` if the first record has it, else None. Raises UserError if only later ones do."""
    from data_pipeline.tasks.records import read_records

    records = read_records(file, ())
    if _NEGATIVE in next(records).fields:
        return _NEGATIVE  # reading the column later raises for a record without it
    for record in records:
        if _NEGATIVE in record.fields:
            raise UserError(
                f"{record.place} has {_NEGATIVE}, the first line has none; give all lines one or none"
            )
    return None


class RankingData:
    """The `TaskData` of ranking."""

    labels: tuple[str, ...] = ()
    metric = "mrr"

    def __init__(
        self,
        kind: HeadKind,
        train: "Rows",
        queries: "Mapping[str, list[RankingQuery]]",
        encoded: "Mapping[str, EncodedQueries]",
    ) -> None:
        self.kind = kind
        self.train = train
        self._queries = queries
        self._encoded = encoded

    @property
    def evaluated(self) -> "Mapping[str, Rows]":
        """The rows of dev and test."""
        return {name: encoded.rows for name, encoded in self._encoded.items()}

    @property
    def dev_fingerprint(self) -> str:
        """A hash of the development set, including its candidates and relevance."""
        return self._fingerprint("dev")

    @property
    def test_fingerprint(self) -> str:
        """A hash of the test set, including its candidates and relevance; empty if there is none."""
        return self._fingerprint("test") if "test" in self._queries else ""

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """MRR, recall@1, recall@10 and NDCG@10 on the development set."""
        return self._figures({"dev": similarities(self._encoded["dev"], apply)})

    def finish(self, apply: Apply, folder: Path) -> Outcome:
        """Writes `predictions-PART.jsonl`: each query's candidates, best first, with their cosines."""
        from data_pipeline.tasks.ranking_metrics import find_degenerate_scores

        scores = {name: similarities(encoded, apply) for name, encoded in self._encoded.items()}
        for name, queries in self._queries.items():
            lines = (describe(query, row) for query, row in zip(queries, scores[name], strict=True))
            write_lines(folder / f"predictions-{name}.jsonl", lines)
        return Outcome(
            self._figures(scores),
            find_degenerate_scores(scores["dev"]),
            examples=top_answers(self._queries["dev"], scores["dev"]),
        )

    def _fingerprint(self, part: str) -> str:
        judged = [(one.query, one.candidates, one.relevance) for one in self._queries[part]]
        return self._encoded[part].rows.fingerprint(judged)

    def _figures(self, scores: Mapping[str, list[np.ndarray]]) -> dict[str, float]:
        """The metrics on each part that has relevance."""
        from data_pipeline.tasks.ranking_metrics import score_rankings

        return join_figures(
            {
                name: score_rankings(self._encoded[name].relevance, of_part)
                for name, of_part in scores.items()
                if self._queries[name][0].relevance
            }
        )


def similarities(encoded: "EncodedQueries", apply: Apply) -> list[np.ndarray]:
    """float32 [C] for each query: the cosine of each candidate's embedding with the query's."""
    vectors = outputs_of(encoded.rows, apply)
    pairs = zip(encoded.query_rows, encoded.candidate_rows, strict=True)
    return [vectors[candidates] @ vectors[query] for query, candidates in pairs]


def order(
    records: "Sequence[Record]", query: "RankingQuery", scores: np.ndarray
) -> "tuple[Sequence[Record], list[dict[str, Any]]]":
    """The records of a query and a prediction for each; if each is one candidate, the best comes first."""
    ranked = describe(query, scores)["ranked"]
    if "candidates" in records[0].fields:
        return records, [{"ranked": ranked}]
    places = np.argsort(-scores, kind="stable")
    found = [{"rank": rank, "score": one["score"]} for rank, one in enumerate(ranked, 1)]
    return [records[place] for place in places], found


def describe(query: "RankingQuery", scores: np.ndarray) -> dict[str, Any]:
    """The prediction for a query: its candidates, best first, with their relevance if it is known."""
    ranked = [
        {"candidate": query.candidates[place], "score": round(float(scores[place]), 6)}
        | ({"relevance": query.relevance[place]} if query.relevance else {})
        for place in np.argsort(-scores, kind="stable")
    ]
    return {"query": query.query, "ranked": ranked}


def top_answers(queries: "Sequence[RankingQuery]", scores: Sequence[np.ndarray]) -> list[dict[str, str]]:
    """Rows of a table: the best answers to the first few queries."""
    rows = []
    for query, row in list(zip(queries, scores, strict=True))[:_QUERIES_SHOWN]:
        for rank, one in enumerate(describe(query, row)["ranked"][:_ANSWERS_SHOWN], 1):
            rows.append(
                {
                    "query": query.query if rank == 1 else "",
                    "rank": str(rank),
                    "answer": one["candidate"],
                    "score": f"{one['score']:.3f}",
                    "relevance": f"{one['relevance']:g}",
                }
            )
    return rows
