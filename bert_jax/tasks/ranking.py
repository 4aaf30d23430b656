"""Ranking: puts a query's candidates in order of the cosine of their embeddings with the query's."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.model.packed_rows import instance_masks
from bert_jax.task import Batch, Metric, Sums
from bert_jax.tasks.finetuning.features import sequence_features
from bert_jax.tasks.finetuning.head import (
    IMPOSSIBLE,
    Head,
    class_sums,
    example_inputs,
    real_rows,
    sequences_of,
)
from bert_jax.tasks.finetuning.labelled_data import ACCURACY
from bert_jax.tasks.finetuning.outputs import outputs_of, write_lines
from bert_jax.tasks.finetuning.predict_records import RecordForm, check_whole
from bert_jax.tasks.finetuning.task import (
    AppliedModel,
    Apply,
    Outcome,
    Prediction,
    TaskData,
    TaskSettings,
    join_splits,
)
from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.encode import make_task_tokenizer
from data_pipeline.tasks.finetuning.records import Record, as_records, read_records
from data_pipeline.tasks.finetuning.rows import Rows
from data_pipeline.tasks.finetuning.splits import find_split, require_split
from data_pipeline.tasks.ranking import (
    QUERY_FIELDS,
    EncodedQueries,
    Flags,
    RankingQuery,
    encode_queries,
    find_degenerate_scores,
    is_object,
    ranking_rows,
    read_candidates,
    read_queries,
    read_ranking,
    read_test_queries,
    score_queries,
    score_rankings,
    split_queries,
)

_NEGATIVE = "negative"
# Enough for full batches of similar length, few enough to hold in memory.
_CANDIDATES_AT_ONCE = 4096

# Sizes of the table of examples on the terminal.
_QUERIES_SHOWN, _ANSWERS_SHOWN = 3, 3


METRICS = (
    Metric("mrr", "MRR"),
    Metric("recall@1", "recall@1"),
    Metric("recall@10", "recall@10"),
    Metric("ndcg@10", "NDCG@10"),
)
_SCALE = 20.0
_MARGIN = 0.2


class EmbeddingHead(nn.Module):
    """float32 [R, C, W], or [R, W] with one sequence per row: a unit vector for each sequence.

    It is the normalized mean of the sequence's features, by default its last hidden states. An empty
    sequence gives zeros.
    """

    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        sequences, width = sequences_of(batch)
        states = sequence_features(self.config, sequences, deterministic).astype(jnp.float32)
        weights = instance_masks(sequences).astype(jnp.float32)
        sums = jnp.einsum("bkt,btw->bkw", weights, states, precision="highest")
        mean = sums / jnp.maximum(weights.sum(-1, keepdims=True), 1.0)
        unit = mean * jax.lax.rsqrt(jnp.maximum((mean * mean).sum(-1, keepdims=True), 1e-12))
        return unit.reshape(-1, *((width,) if width > 1 else ()), unit.shape[-1])


class Ranking(Head):
    """Embeds queries near the texts that answer them. A row has query, positive and optionally negative."""

    kind: ClassVar[str] = "ranking"

    @property
    def module(self) -> nn.Module:
        return EmbeddingHead(self.config)

    def example_batch(self) -> dict[str, jax.Array]:
        return example_inputs((1, 3, 2))


class InBatch(Ranking):
    """Cross-entropy of the softmax, as in DPR (Karpukhin et al. 2020), of 20 times a query's cosines with the
    positives and negatives of all rows that are computed together (a micro-batch; under pmap, those of one
    device). A row has no negatives that are its own positive, or that another row has as the positive of the
    same query."""

    rows_compete: ClassVar[bool] = True

    def example_batch(self) -> dict[str, jax.Array]:
        return super().example_batch() | {"text_numbers": jnp.zeros((1, 3), jnp.int32)}

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        real = real_rows(batch)
        query, positive, *negatives = jnp.moveaxis(outputs, 1, 0)
        candidates = jnp.concatenate([positive, *negatives])
        query_number, positive_number, *negative_numbers = batch["text_numbers"].reshape(len(query), -1).T
        numbers = jnp.concatenate([positive_number, *negative_numbers])
        same_query = real * (query_number == query_number[:, None])
        is_right = same_query @ (numbers == positive_number[:, None]).astype(jnp.float32) > 0
        is_own = jnp.arange(len(candidates)) == jnp.arange(len(query))[:, None]
        is_there = jnp.tile(real, 1 + len(negatives)) > 0
        counts = is_there & (is_own | ~is_right)
        scores = jnp.where(counts, _SCALE * query @ candidates.T, IMPOSSIBLE)
        return class_sums(scores, jnp.arange(len(query)), real)

    def check(self, rows: Rows) -> None:
        """Raises UserError if there would be no negatives to learn from."""
        parallel, size = self.config.parallel, self.config.global_batch_size
        parts = jax.device_count() if parallel.mode == "pmap" else 1
        parts *= parallel.accumulation_steps
        if rows.sequences_per_row == 2 and size < 2 * parts:
            raise UserError(
                f"the batch size is {size}; in_batch without negatives needs two rows or more that are "
                f"computed together, so make it {2 * parts} or more, or give --negative-column"
            )


class Triplet(Ranking):
    """Hinge loss by which the positive's cosine is to exceed the negative's by 0.2 (Schroff et al. 2015)."""

    def numerators(self, outputs: jax.Array, batch: Batch) -> Sums:
        real = real_rows(batch)
        query, positive, negative = jnp.moveaxis(outputs, 1, 0)
        gap = (query * positive).sum(-1) - (query * negative).sum(-1)
        loss = jnp.maximum(_MARGIN - gap, 0)
        return {"loss": (loss * real).sum(), "correct": ((gap > 0) * real).sum()}


@dataclasses.dataclass(frozen=True)
class Settings(Flags, TaskSettings):
    """Queries, and candidates to put in order."""

    def load(self, task: str, data: str, tokenizer: Tokenizer) -> "RankingData":
        """Reads and encodes train, dev, and test if there is one."""
        del task
        directory, plain = Path(data), make_task_tokenizer(tokenizer)
        train_file = require_split(directory, "train")
        negative = self.negative_column or _default_negative(train_file, self.encoding)
        if self.loss == "triplet" and negative is None:
            raise UserError(f"--loss triplet needs --negative-column: {train_file} has no {_NEGATIVE}")
        columns = [self.query_column, self.positive_column, *([] if negative is None else [negative])]
        train = read_ranking(train_file, columns, self.encoding)
        splits = {"dev": read_queries(require_split(directory, "dev"), self.encoding)}
        if file := find_split(directory, "test"):
            splits["test"] = read_test_queries(file, self.encoding)
        return RankingData(
            ranking_rows(train, plain, self.max_seq_length),
            {name: encode_queries(split, plain, self.max_seq_length) for name, split in splits.items()},
        )

    def head(self, task: str, config: FineTuningConfig) -> Ranking:
        """A vector for each text."""
        return (Triplet if self.loss == "triplet" else InBatch)(config, (*METRICS, ACCURACY))

    def predict_file(self, job: Prediction) -> int:
        """Predicts queries with candidates in the form of dev; relevance is not needed.

        Rows of a table are written with their rank and score, the best candidate of each query first.
        """
        form = RecordForm(job.input, job.encoding)

        def read() -> Iterator[tuple[list[Record], RankingQuery]]:
            for records in split_queries(job.input, encoding=job.encoding):
                form.check(records[0])
                yield records, read_candidates(records)

        def parts() -> Iterator[list[str]]:
            for part in parts_of(check_whole(read)):
                scores = self._score([query for _, query in part], job.model)
                yield [
                    "".join(form.lines(*order(records, query, row)))
                    for (records, query), row in zip(part, scores, strict=True)
                ]

        return job.write_text(parts())

    def predict_examples(self, examples: Sequence[Any], model: AppliedModel) -> list[dict[str, Any]]:
        """Predicts dicts {"query", "candidates"}."""
        queries = [read_candidates([record]) for record in as_records(examples, QUERY_FIELDS)]
        pairs = zip(queries, self._score(queries, model), strict=True)
        return [{"ranked": rank_candidates(query, scores)} for query, scores in pairs]

    def _score(self, queries: Sequence[RankingQuery], model: AppliedModel) -> list[np.ndarray]:
        encoded = encode_queries(queries, model.plain_tokenizer, self.max_seq_length)
        return similarities(encoded, model.apply)


def parts_of(
    queries: Iterator[tuple[list[Record], RankingQuery]],
) -> Iterator[list[tuple[list[Record], RankingQuery]]]:
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


def _default_negative(file: Path, encoding: str) -> str | None:
    """The field `negative` if the first record has it, else None. Raises UserError if only later ones do."""

    records = read_records(file, (), encoding)
    if _NEGATIVE in next(records).fields:
        return _NEGATIVE  # reading the column later raises for a record without it
    for record in records:
        if _NEGATIVE in record.fields:
            raise UserError(
                f"{record.place} has {_NEGATIVE}, the first line has none; give all lines one or none"
            )
    return None


class RankingData(TaskData):
    """Training rows, and the queries of other splits."""

    metrics = METRICS

    def __init__(self, train: Rows, splits: Mapping[str, EncodedQueries]) -> None:
        self.train = train
        self.evaluated = {name: split.rows for name, split in splits.items()}
        self.dev_fingerprint = _fingerprint(splits["dev"])
        self.test_fingerprint = _fingerprint(splits["test"]) if "test" in splits else ""
        self._splits = splits

    def evaluate(self, apply: Apply) -> dict[str, float]:
        """MRR, recall@1, recall@10 and NDCG@10 on the development set."""
        return self._score({"dev": similarities(self._splits["dev"], apply)})

    def finish(self, apply: Apply, directory: Path) -> Outcome:
        """Writes `predictions-SPLIT.jsonl`: each query's candidates, best first, with their cosines."""
        scores = {name: similarities(split, apply) for name, split in self._splits.items()}
        for name, split in self._splits.items():
            lines = (
                {"query": query.query, "ranked": rank_candidates(query, row)}
                for query, row in zip(split.queries, scores[name], strict=True)
            )
            write_lines(directory / f"predictions-{name}.jsonl", lines)
        dev = self._splits["dev"]
        return Outcome(
            self._score(scores),
            find_degenerate_scores(scores["dev"]),
            examples=top_answers(dev.queries, scores["dev"]),
            items=score_queries(dev.relevance, scores["dev"]),
        )

    def _score(self, scores: Mapping[str, list[np.ndarray]]) -> dict[str, float]:
        """The metrics on each split that has relevance."""
        return join_splits(
            {
                name: score_rankings(self._splits[name].relevance, of_split)
                for name, of_split in scores.items()
                if self._splits[name].queries[0].relevance
            }
        )


def _fingerprint(split: EncodedQueries) -> str:
    """A hash of a split, including its candidates and relevance."""
    return split.rows.fingerprint([(one.query, one.candidates, one.relevance) for one in split.queries])


def similarities(encoded: EncodedQueries, apply: Apply) -> list[np.ndarray]:
    """float32 [C] for each query: the cosine of each candidate's embedding with the query's."""
    vectors = outputs_of(encoded.rows, apply)
    pairs = zip(encoded.query_rows, encoded.candidate_rows, strict=True)
    return [vectors[candidates] @ vectors[query] for query, candidates in pairs]


def order(
    records: Sequence[Record], query: RankingQuery, scores: np.ndarray
) -> tuple[Sequence[Record], list[dict[str, Any]]]:
    """The records of a query and a prediction for each; if each is one candidate, the best comes first."""
    ranked = rank_candidates(query, scores)
    if is_object(records[0]):
        return records, [{"ranked": ranked}]
    places = np.argsort(-scores, kind="stable")
    found = [{"rank": rank, "score": one["score"]} for rank, one in enumerate(ranked, 1)]
    return [records[place] for place in places], found


def rank_candidates(query: RankingQuery, scores: np.ndarray) -> list[dict[str, Any]]:
    """The query's candidates, best first, with their relevance if it is known."""
    return [
        {"candidate": query.candidates[place], "score": round(float(scores[place]), 6)}
        | ({"relevance": query.relevance[place]} if query.relevance else {})
        for place in np.argsort(-scores, kind="stable")
    ]


def top_answers(queries: Sequence[RankingQuery], scores: Sequence[np.ndarray]) -> list[dict[str, str]]:
    """Rows of a table: the best answers to the first few queries."""
    rows = []
    for query, row in zip(queries[:_QUERIES_SHOWN], scores[:_QUERIES_SHOWN], strict=True):
        for rank, one in enumerate(rank_candidates(query, row)[:_ANSWERS_SHOWN], 1):
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
