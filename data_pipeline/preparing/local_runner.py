"""Shards made by processes of this machine.

One process reads, and hands the text of each shard to a worker. At most one more shard than there are
workers is in progress, so memory depends on neither the size of the corpus nor that of its files.
"""

import dataclasses
import functools
from concurrent.futures import Executor, Future
from pathlib import Path

import joblib

from data_pipeline.checks import check_positive
from data_pipeline.corpus.tokenizer import Tokenizer, load_tokenizer
from data_pipeline.preparing.inputs import Inputs, Source
from data_pipeline.preparing.progress import Progress, count_bytes
from data_pipeline.preparing.shard_texts import ShardJob, ShardText, finish_shard, gather_shard_texts
from data_pipeline.preparing.summary import Totals, sum_totals
from data_pipeline.preparing.worker_pool import in_order, worker_pool


@dataclasses.dataclass(frozen=True)
class LocalRunner:
    """Makes shards by processes of this machine. Raises UserError if `workers` is below 1."""

    workers: int | None = None
    """Processes that tokenise; None: one per core. The result does not depend on it."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_positive("--workers", self.workers)

    def make_shards(self, job: ShardJob, on_progress: Progress) -> Totals:
        """Fills `job.directory`; see `data_pipeline.preparing.prepare.Runner`."""
        workers = self.workers or joblib.cpu_count()
        documents = job.inputs.documents(count_bytes(job.inputs, "tokenising", on_progress))
        texts = gather_shard_texts(documents, job.heldout_threshold)
        # Workers need none of the inputs, which may be many thousands.
        job = dataclasses.replace(job, inputs=Inputs(Source(()), ()))
        with worker_pool(workers) as pool:
            futures = (_submit(pool, job, text) for text in texts)
            return sum_totals(in_order(futures, ahead=workers))


def _submit(pool: Executor, job: ShardJob, text: ShardText) -> Future[Totals]:
    """Hands the work on a shard to a worker; one that exists already is not made again."""
    is_made = (job.directory / text.file).exists()
    return pool.submit(_finish_shard, job, text._replace(documents=[]) if is_made else text, is_made)


def _finish_shard(job: ShardJob, text: ShardText, is_made: bool) -> Totals:
    return finish_shard(job, text, _tokenizer(job.tokenizer_directory), is_made)


@functools.lru_cache(maxsize=1)
def _tokenizer(directory: Path) -> Tokenizer:
    """Loaded once in each process."""
    return load_tokenizer(directory)
