"""Ranking data: texts are encoded on their own, so that a query lies near the texts that answer it."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, encode_texts
from data_pipeline.tasks.finetuning.flags import TaskFlags
from data_pipeline.tasks.finetuning.labels import all_or_none, parse_number
from data_pipeline.tasks.finetuning.records import Place, Record, read_records
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.splits import is_json_lines

QUERY_FIELDS = ("query", "candidates")
"""Required fields of a JSON object."""

RankingLoss = Literal["in_batch", "triplet"]


@dataclasses.dataclass(frozen=True)
class Flags(TaskFlags):
    """A directory with train (columns query, positive, optionally negative), dev and optionally test
    (query_id, query, candidate, relevance), each .tsv, .csv or .jsonl. In JSONL, dev and test have the fields
    query, candidates, relevance. Test may be without relevance."""

    max_seq_length: int = 128
    """Maximum length of each text, in tokens; longer ones are truncated."""
    loss: RankingLoss = "in_batch"
    """in_batch: the texts of a batch's other rows are negatives too. triplet: needs negatives."""
    query_column: str = "query"
    """Column of train, or field of JSONL, with the query."""
    positive_column: str = "positive"
    """Column of train with a text that answers the query."""
    negative_column: str | None = None
    """Column of train with a text that does not; by default "negative", if there is such a column."""
    encoding: str = "utf-8"
    """Encoding of the files, such as latin-1."""
    files_only: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class RankingQuery:
    """A query with candidates to put in order."""

    place: Place
    query: str
    candidates: tuple[str, ...]
    """Two or more; in queries to predict, one or more."""
    relevance: tuple[float, ...] = ()
    """Relevance of each candidate: 0 is irrelevant, more is better. Empty in queries to predict."""


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedQueries:
    """Each distinct text of an evaluation set once, and which of them are the queries and candidates."""

    rows: Rows
    queries: tuple[RankingQuery, ...]
    query_rows: np.ndarray
    """int32 [Q]: the row of each query."""
    candidate_rows: tuple[np.ndarray, ...]
    """int32 [C_q] for each query: the rows of its candidates."""
    relevance: tuple[np.ndarray, ...]
    """float32 [C_q] for each query; empty in queries to predict."""


def read_ranking(file: Path, columns: Sequence[str], encoding: str = "utf-8") -> list[tuple[str, ...]]:
    """Training examples of a .tsv, .csv or .jsonl file: the texts in the given columns.

    Args:
      columns: those of the query, of the positive and, if there is one, of the negative.

    Raises UserError as `read_records`, and if a text is empty.
    """
    records = read_records(file, columns, encoding)
    return [tuple(record.text(name) for name in columns) for record in records]


def ranking_rows(examples: Sequence[Sequence[str]], tokenizer: TaskTokenizer, max_length: int) -> Rows:
    """One row per example: two sequences, query and positive, or three with the negative.

    The target `text_numbers`, int32 [R, 2 or 3], tells which of them are the same text.
    """
    texts = [text for example in examples for text in example]
    width = len(examples[0])
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers = np.array([number_of[text] for text in texts], np.int32).reshape(-1, width)
    return encode_texts(tokenizer, texts, max_length, {"text_numbers": numbers}, width)


def read_queries(file: Path, encoding: str = "utf-8") -> list[RankingQuery]:
    """Queries with candidates and their relevance.

    JSONL has {"query", "candidates": [...], "relevance": [...]} on each line. TSV and CSV have the columns
    query_id, query, candidate, relevance; the rows of a query are consecutive.

    Raises:
      UserError: as `read_records`; an empty text; fewer than two candidates; a relevance that is not a number
        of 0 or more; rows of one query_id that are not consecutive, or have different queries.
    """
    return [read_relevance(group) for group in split_queries(file, ("relevance",), encoding)]


def read_test_queries(file: Path, encoding: str = "utf-8") -> list[RankingQuery]:
    """Queries as `read_queries`, or without relevance, as `read_candidates`, if no record has one."""
    groups = list(split_queries(file, encoding=encoding))
    is_judged = all_or_none(
        ((record.place, _is_judged(record)) for group in groups for record in group), "relevance"
    )
    return [read_relevance(group) if is_judged else read_candidates(group) for group in groups]


def split_queries(file: Path, more: Sequence[str] = (), encoding: str = "utf-8") -> Iterator[list[Record]]:
    """The records of each query: one record of JSONL, or the rows of a table with its query_id.

    Args:
      more: columns to require besides query_id, query and candidate, or query and candidates in JSONL.

    Raises:
      UserError: as `read_records`; an empty query_id; rows of one query_id that are not consecutive.
    """
    if is_json_lines(file):
        yield from ([record] for record in read_records(file, (*QUERY_FIELDS, *more), encoding))
        return
    records = read_records(file, ("query_id", "query", "candidate", *more), encoding)
    seen: set[str] = set()
    for name, group in itertools.groupby(records, lambda record: record.word("query_id")):
        found = list(group)
        if name in seen:
            raise UserError(
                f"{found[0].place}: query_id {name} came before; the rows of a query must be consecutive"
            )
        seen.add(name)
        yield found


def read_candidates(records: Sequence[Record]) -> RankingQuery:
    """The query of one group of `split_queries`, without relevance.

    Raises UserError if a text is empty, or if the records have different queries.
    """
    first = records[0]
    if is_object(first):
        candidates = first.texts("candidates", 1)
    else:
        candidates = tuple(record.text("candidate") for record in records)
    query = first.text("query")
    for record in records:
        if record.text("query") != query:
            raise UserError(
                f"{record.place}: query_id {first.fields['query_id']} has another query than at {first.place}"
            )
    return RankingQuery(first.place, query, candidates)


def is_object(record: Record) -> bool:
    """Whether a record of `split_queries` is an object with all candidates, not a row of a table with one."""
    # A table may have a column "candidates" besides.
    return "candidate" not in record.fields or isinstance(record.fields.get("candidates"), list | tuple)


def read_relevance(records: Sequence[Record]) -> RankingQuery:
    """The query of one group of `split_queries`, with relevance; raises UserError as `read_queries`."""
    query, first = read_candidates(records), records[0]
    if len(query.candidates) < 2:
        raise UserError(f"{query.place}: {query.query[:40]!r} has one candidate; ranking needs two or more")
    values = [record.fields["relevance"] for record in records]
    if is_object(first):
        [values] = values
        if not isinstance(values, list) or len(values) != len(query.candidates):
            raise UserError(
                f"{query.place}: relevance must be a list of {len(query.candidates)}, one a candidate"
            )
        places = [query.place] * len(values)
    else:
        places = [record.place for record in records]
    relevance = tuple(_relevance(place, value) for place, value in zip(places, values, strict=True))
    return dataclasses.replace(query, relevance=relevance)


def encode_queries(
    queries: Sequence[RankingQuery], tokenizer: TaskTokenizer, max_length: int
) -> EncodedQueries:
    """Encodes each distinct text once, however many queries have it as a candidate."""
    texts = list(dict.fromkeys(text for query in queries for text in (query.query, *query.candidates)))
    numbers = {text: number for number, text in enumerate(texts)}
    return EncodedQueries(
        rows=encode_texts(tokenizer, texts, max_length),
        queries=tuple(queries),
        query_rows=np.array([numbers[query.query] for query in queries], np.int32),
        candidate_rows=tuple(np.array([numbers[c] for c in q.candidates], np.int32) for q in queries),
        relevance=tuple(np.array(query.relevance, np.float32) for query in queries),
    )


def _is_judged(record: Record) -> bool:
    value = record.fields.get("relevance")
    return bool(value.strip() if isinstance(value, str) else value)


def _relevance(place: Place, value: object) -> float:
    number = parse_number(str(value))
    if number is None or number < 0:
        raise UserError(
            f"{place} has the relevance {value!r}; it must be a number of 0 or more that fits float32"
        )
    return number


def score_rankings(
    relevance: Sequence[np.ndarray], scores: Sequence[np.ndarray], cutoff: int = 10
) -> dict[str, float]:
    """Means of `score_queries` over the queries, with its arguments."""
    scored = score_queries(relevance, scores, cutoff)
    return {name: float(np.mean(of_queries)) for name, of_queries in scored.items()}


def score_queries(
    relevance: Sequence[np.ndarray], scores: Sequence[np.ndarray], cutoff: int = 10
) -> dict[str, np.ndarray]:
    """The metrics of each query; one without a relevant candidate has 0.

    For mrr and recall, candidates of equal score are ranked worst first, so a model that gives all the same
    score gains nothing from the order of a file.

    Args:
      relevance: a float array [C] for each query; above 0 is relevant, more is better.
      scores: an array [C] for each query; the highest is ranked first. C is 2 or more.
      cutoff: k of recall@k and ndcg@k.

    Returns:
      mrr, recall@1, recall@k and ndcg@k, float64 [N] from 0 to 1. recall@k is the fraction of a query's
      relevant candidates that are among its first k; in ndcg one adds relevance / log2(1 + rank).
    """
    from sklearn.metrics import ndcg_score

    rows = []
    for truth, score in zip(relevance, scores, strict=True):
        ranked = np.asarray(truth)[np.lexsort((truth, -np.asarray(score)))] > 0
        relevant = max(ranked.sum(), 1)
        first = ranked.argmax()
        rows.append(
            {
                "mrr": ranked[first] / (first + 1),
                "recall@1": ranked[:1].sum() / relevant,
                f"recall@{cutoff}": ranked[:cutoff].sum() / relevant,
                f"ndcg@{cutoff}": ndcg_score([truth], [score], k=cutoff),
            }
        )
    return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}


def find_degenerate_scores(scores: Sequence[np.ndarray]) -> str | None:
    """A one-sentence warning if each query's candidates all have the same score, else None."""
    if any(np.ptp(score) > 0 for score in scores):
        return None
    return "every candidate has the same score as the others of its query: the model does not tell them apart"
