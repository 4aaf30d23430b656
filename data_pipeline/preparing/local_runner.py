"""Shards made by processes of this machine.

One process reads, and hands the text of each shard to a worker. At most one more shard than there are
workers is in progress, so memory depends on neither the size of the corpus nor that of its files.
"""

import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import joblib

from data_pipeline.corpus.tokenizer import Tokenizer, load_tokenizer
from data_pipeline.errors import UserError
from data_pipeline.names import Split
from data_pipeline.preparing.progress import Progress, read_documents
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.shard_texts import ShardJob, ShardText, finish_shard, gather_shard_texts
from data_pipeline.preparing.summary import ShardSummary, Totals
from data_pipeline.preparing.worker_pool import in_order, worker_pool


@dataclasses.dataclass(frozen=True)
class LocalRunner:
    """Makes shards by processes of this machine. Raises UserError if `workers` is below 1."""

    workers: int | None = None
    """Processes that tokenise; None: one per core. The result does not depend on it."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers is {self.workers}; it must be at least 1")

    def make_shards(self, job: ShardJob, on_progress: Progress) -> Totals:
        """Fills `job.directory`; see `data_pipeline.preparing.prepare.Runner`."""
        workers = self.workers or joblib.cpu_count()
        documents = read_documents(job.inputs, "tokenising", on_progress)
        texts = gather_shard_texts(documents, job.heldout_threshold)
        totals = Totals()
        with worker_pool(workers) as pool:
            for shard in in_order(_make_shards(job, texts, pool), ahead=workers):
                totals.add(*shard)
        return totals


def _make_shards(
    job: ShardJob, texts: Iterator[ShardText], pool: Executor
) -> Iterator[Future[tuple[Split, ShardSummary, int]]]:
    """Yields the work on each shard in order; those that exist already are not made again."""
    for text in texts:
        path = job.directory / text.file
        work = None if path.exists() else text.documents
        # The job itself stays here: it lists every input, which may be many thousands.
        yield pool.submit(
            _finish_shard,
            text._replace(documents=[]),
            path,
            work,
            job.tokenizer_directory,
            job.language,
            job.max_tokens_per_character,
        )


def _finish_shard(
    text: ShardText,
    path: Path,
    documents: list[Document] | None,
    tokenizer_directory: Path,
    language: str,
    most: float | None,
) -> tuple[Split, ShardSummary, int]:
    summary = finish_shard(path, documents, _tokenizer(tokenizer_directory), language, most)
    return text.split, summary, text.size


@functools.lru_cache(maxsize=1)
def _tokenizer(directory: Path) -> Tokenizer:
    """Loaded once in each process."""
    return load_tokenizer(directory)
