"""Shards made by processes of this machine.

One process reads, and hands the text of each shard to a worker. At most one more shard than there are
workers is in progress, so memory depends on neither the size of the corpus nor that of its files.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

from data_pipeline.corpus.tokenizer import Tokenizer, load_tokenizer
from data_pipeline.errors import UserError
from data_pipeline.preparing.progress import Progress, read_documents
from data_pipeline.preparing.readers import Document
from data_pipeline.preparing.shard_texts import ShardJob, ShardText, finish_shard, gather_shard_texts
from data_pipeline.preparing.summary import ShardSummary, Totals
from data_pipeline.preparing.worker_pool import count_cores, worker_pool


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
        workers = self.workers or count_cores()
        documents = read_documents(job.inputs, "tokenising", on_progress)
        texts = gather_shard_texts(documents, job.heldout_threshold)
        totals = Totals()
        with worker_pool(workers) as pool:
            for text, shard in _make_shards(job, texts, pool, workers):
                totals.add(text.split, shard, text.size)
        return totals


def _make_shards(
    job: ShardJob, texts: Iterator[ShardText], pool: Executor, workers: int
) -> Iterator[tuple[ShardText, ShardSummary]]:
    """Yields each shard in order; those that exist already are not made again."""
    under_way: collections.deque[tuple[ShardText, Future[ShardSummary]]] = collections.deque()
    for text in texts:
        path = job.directory / text.file
        work = None if path.exists() else text.documents
        # The job itself stays here: it lists every input, which may be many thousands.
        future = pool.submit(
            _finish_shard, path, work, job.tokenizer_directory, job.language, job.max_tokens_per_character
        )
        under_way.append((text._replace(documents=[]), future))
        if len(under_way) > workers:
            done, future = under_way.popleft()
            yield done, future.result()
    for done, future in under_way:
        yield done, future.result()


def _finish_shard(
    path: Path, documents: list[Document] | None, tokenizer_directory: Path, language: str, most: float | None
) -> ShardSummary:
    return finish_shard(path, documents, _tokenizer(tokenizer_directory), language, most)


@functools.lru_cache(maxsize=1)
def _tokenizer(directory: Path) -> Tokenizer:
    """Loaded once in each process."""
    return load_tokenizer(directory)
