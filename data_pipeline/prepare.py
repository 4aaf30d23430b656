"""Text to a corpus: find, read, split, tokenise, write, count; whole at the end or restartable.

One process reads and hands pieces of documents to workers; at most one more piece than there are
workers is under way, so memory depends on neither the corpus nor its files.
"""

import collections
import dataclasses
import importlib.metadata
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from data_pipeline.corpus import FORMAT_VERSION, MANIFEST_FILE, TOKENIZER_DIRECTORY, Split
from data_pipeline.errors import UserError
from data_pipeline.partial import check_output, claim, publish, write_json
from data_pipeline.pieces import PIECE_BYTES, Piece, as_text, digest, finish_piece, gather_pieces, heldout_bar
from data_pipeline.readers import Document, Inputs, Source, find_inputs
from data_pipeline.sentences import check_language
from data_pipeline.summary import ShardSummary, Totals
from data_pipeline.tokenizer import Casing, Kind, Tokenizer, load_tokenizer, load_vocabulary
from data_pipeline.vocabulary import SAMPLE_BYTES, sample_texts, train_vocabulary
from data_pipeline.worker_pool import WorkerKilled, count_cores, worker_pool

Progress = Callable[[str, int, int | None], None]
"""Hears the name of a pass over the inputs, the bytes read in it, and how many there are if known."""

_LIBRARIES = ("bert-jax", "tokenizers", "sentencepiece", "sentencex", "pyarrow")


@dataclasses.dataclass(frozen=True)
class PrepareSettings:
    """Everything that decides the bytes of a corpus, but for the text itself."""

    source: Source
    vocab: str | None = None
    """A vocab.txt or SentencePiece .model; exactly one of this and `train_vocab`."""
    train_vocab: Kind | None = None
    vocab_size: int | None = None
    """Pieces to learn at most, with `train_vocab`."""
    casing: Casing = "uncased"
    language: str = "en"
    """Code of the language whose rules split text into sentences."""
    holdout: float = 0.01
    """Share of the documents kept aside for evaluation."""

    def __post_init__(self) -> None:
        if (self.vocab is None) == (self.train_vocab is None):
            raise UserError("give exactly one of --vocab FILE and --train-vocab wordpiece|sentencepiece")
        if (self.train_vocab is None) != (self.vocab_size is None):
            raise UserError("--train-vocab needs --vocab-size N, and --vocab goes without it")
        if not 0 <= self.holdout < 1:
            raise UserError(f"--holdout is {self.holdout}; it must be at least 0 and below 1")
        check_language(self.language)


def prepare(
    settings: PrepareSettings,
    output: str | Path,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    on_progress: Progress = lambda name, done, total: None,
) -> dict[str, Any]:
    """Make the corpus `output` and return its manifest.

    Args:
      workers: processes that tokenise; None takes every core. The result does not depend on it.
      overwrite: replace a corpus of that name and what an interrupted run of another command left.

    Raises:
      UserError: bad settings or input; nothing is left behind. Anything else that stops it leaves a
        folder from which the same call goes on.
    """
    output = Path(output)
    if workers is not None and workers < 1:
        raise UserError(f"--workers is {workers}; it must be at least 1")
    check_output(output, overwrite)
    inputs = find_inputs(settings.source)
    _check_outside(output, settings.source)
    given = None if settings.vocab is None else load_vocabulary(Path(settings.vocab), settings.casing)
    if next(inputs.documents(), None) is None:
        raise UserError(f"no text in {', '.join(settings.source.inputs)}; the inputs hold no document")
    with claim(output, _record(settings, inputs, given), overwrite) as directory:
        try:
            manifest = _fill(directory, settings, inputs, given, workers or count_cores(), on_progress)
        except WorkerKilled:
            raise
        except UserError:
            shutil.rmtree(directory)
            raise
        write_json(directory / MANIFEST_FILE, manifest)
        publish(directory, output)
    return manifest


def _fill(
    directory: Path,
    settings: PrepareSettings,
    inputs: Inputs,
    given: Tokenizer | None,
    workers: int,
    on_progress: Progress,
) -> dict[str, Any]:
    bar = heldout_bar(inputs.documents(), settings.holdout)
    tokenizer = _settle_tokenizer(directory / TOKENIZER_DIRECTORY, settings, inputs, given, bar, on_progress)
    pieces = gather_pieces(_read(inputs, "tokenising", on_progress), bar)
    totals, text_bytes = Totals(), 0
    shards: dict[Split, list[dict[str, Any]]] = {"train": [], "heldout": []}
    with worker_pool(workers) as pool:
        for split, shard, size in _make_shards(directory, pieces, settings.language, pool, workers):
            text_bytes += size
            totals.add(shard)
            shards[split].append(shard.row())
    splits = {split: _add_up(rows) for split, rows in shards.items()}
    _check_not_empty(splits, settings)
    return {
        "format_version": FORMAT_VERSION,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "settings": dataclasses.asdict(settings),
        "tokenizer": {
            "kind": tokenizer.kind,
            "casing": tokenizer.casing,
            "vocab_size": tokenizer.vocab_size,
            "sha256": tokenizer.sha256,
        },
        "text_bytes": text_bytes,
        "splits": splits,
        "statistics": totals.statistics(),
    }


def _make_shards(
    directory: Path, pieces: Iterator[tuple[Piece, int]], language: str, pool: Executor, workers: int
) -> Iterator[tuple[Split, ShardSummary, int]]:
    """Each shard in order, with its split and its bytes of text; those already there are not made again."""
    under_way: collections.deque[tuple[Split, Future[ShardSummary], int]] = collections.deque()
    for piece, size in pieces:
        path = directory / piece.file
        work = None if path.exists() else piece.documents
        future = pool.submit(finish_piece, path, work, directory / TOKENIZER_DIRECTORY, language)
        under_way.append((piece.split, future, size))
        if len(under_way) > workers:
            split, future, size = under_way.popleft()
            yield split, future.result(), size
    for split, future, size in under_way:
        yield split, future.result(), size


def _settle_tokenizer(
    directory: Path,
    settings: PrepareSettings,
    inputs: Inputs,
    given: Tokenizer | None,
    bar: int,
    on_progress: Progress,
) -> Tokenizer:
    """The given tokenizer, that of the interrupted run, or one learned from the training documents."""
    if directory.exists():
        return load_tokenizer(directory)
    tokenizer = given or _learn(settings, inputs, bar, on_progress)
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    tokenizer.save(partial)
    partial.rename(directory)
    return tokenizer


def _learn(settings: PrepareSettings, inputs: Inputs, bar: int, on_progress: Progress) -> Tokenizer:
    assert settings.train_vocab is not None
    assert settings.vocab_size is not None
    documents = _read(inputs, "choosing text for the vocabulary", on_progress)
    digests = ((digest(document), document) for document in documents)
    training = ((found.sample, as_text(document)) for found, document in digests if found.split >= bar)
    texts = sample_texts(training, SAMPLE_BYTES[settings.train_vocab])
    on_progress("learning the vocabulary", 0, None)
    return train_vocabulary(texts, settings.train_vocab, settings.vocab_size, settings.casing)


def _read(inputs: Inputs, name: str, on_progress: Progress) -> Iterator[Document]:
    done, total = 0, inputs.total_bytes

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(name, done, total)

    advance(0)
    return inputs.documents(advance)


def _record(settings: PrepareSettings, inputs: Inputs, given: Tokenizer | None) -> dict[str, Any]:
    """What must be the same for a restart to go on."""
    values = dataclasses.asdict(settings)
    values |= values.pop("source")
    return {
        **values,
        "vocab": given.sha256 if given else None,
        "inputs": inputs.fingerprint(),
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "piece_bytes": PIECE_BYTES,
    }


def _add_up(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A split's entry in the manifest."""
    totals = {name: sum(row[name] for row in rows) for name in ("documents", "sentences", "tokens")}
    return {**totals, "shards": rows}


def _check_not_empty(splits: dict[Split, dict[str, Any]], settings: PrepareSettings) -> None:
    train, heldout = splits["train"]["documents"], splits["heldout"]["documents"]
    if not train and not heldout:
        raise UserError(f"no text in {', '.join(settings.source.inputs)}; its documents hold no token")
    if not train:
        raise UserError(
            f"--holdout {settings.holdout} keeps all {heldout} documents aside; "
            f"give more documents, or --holdout 0 to train on all"
        )


def _check_outside(output: Path, source: Source) -> None:
    for name in source.inputs:
        if Path(name).is_dir() and output.resolve().is_relative_to(Path(name).resolve()):
            raise UserError(f"--output {output} lies inside the input {name}; give a folder outside it")
