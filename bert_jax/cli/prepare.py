"""`bert-jax prepare`: text to a corpus of token ids, with a report of what was made."""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bert_jax.cli import ctrl_c
from bert_jax.cli.flags import choices, parse_flags
from data_pipeline.errors import UserError
from data_pipeline.names import EncodingErrors, Format, RunnerName
from data_pipeline.vocabulary_file import Casing, TokenizerKind, Vocabulary, guess_casing

if TYPE_CHECKING:
    from data_pipeline.preparing.prepare import PrepareSettings, Runner


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Turn text into shards of token ids and a vocabulary.

    For example, to learn a vocabulary of 8,192 pieces from a folder of plain text:

      bert-jax prepare text/ --format text --train-vocab wordpiece \\
          --vocab-size 8192 --output corpora/mine

    Ctrl-C and SIGTERM end it with status 75: the same command resumes where it stopped.

    To use many machines, with Apache Beam, whose own options follow after --:

      bert-jax prepare INPUT... --output DIR --vocab FILE --runner flink \\
          -- --flink_master HOST:8081
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="INPUT...", help_behavior_hint="(required)"),
    ]
    """Files, folders, globs (.gz, .zst, .bz2, .xz too), TFDS data sets
    (tfds:wikipedia/20230601.en), installed-documentation."""
    output: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder to make; it appears only when it is complete."""
    format: Format = "auto"
    """sentences: one per line, a blank line between documents. lines: one
    document per line. text: a file is a document, blank lines separate
    paragraphs. auto: WikiExtractor, JSONL, TSV, CSV or Parquet, detected by
    name or first line."""
    vocab: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """A vocab.txt, a SentencePiece .model, or a model's folder, whose casing
    is used too. Give either this or --train-vocab."""
    train_vocab: Annotated[TokenizerKind | None, tyro.conf.arg(metavar=choices(TokenizerKind))] = None
    """Learn the vocabulary from the text."""
    vocab_size: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Most pieces to learn; needed with --train-vocab."""
    casing: Annotated[Casing | None, tyro.conf.arg(metavar=choices(Casing))] = None
    """uncased: lowercase, and strip accents (WordPiece) or fold case
    (SentencePiece). By default that of the model in --vocab; without a
    model, uncased."""
    language: Annotated[str, tyro.conf.arg(metavar="CODE")] = "en"
    """Language whose rules split text into sentences: an ISO 639 code (ja, not
    jp). Unknown codes split as en."""
    holdout: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.01
    """Share of documents held out for evaluation, at least two if there are four; 0 holds out none."""
    text_field: Annotated[str, tyro.conf.arg(metavar="NAME")] = "text"
    """Field or column with the text, in JSONL, TSV, CSV, Parquet and TFDS."""
    encoding_errors: EncodingErrors = "strict"
    """strict: stop at bytes that are not UTF-8, and name them. replace: replace them by U+FFFD."""
    tfds_data_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder in which TFDS keeps its data."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of processes; by default one per core. The result does not depend on it."""
    runner: Annotated[RunnerName | None, tyro.conf.arg(metavar=choices(RunnerName))] = None
    """Make the same shards by Apache Beam (extra [beam]) on this runner; its options follow after --."""
    runner_options: tyro.conf.Suppress[tyro.conf.Fixed[tuple[str, ...]]] = ()
    """Beam's options: the arguments after --."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace a corpus of that name, and what an interrupted run of another command left."""


def parse(argv: Sequence[str]) -> Prepare:
    """Reads the flags; those after `--` are Beam's. Raises UserError if they contradict each other."""
    own, options = list(argv), []
    if "--" in own:
        border = own.index("--")
        own, options = own[:border], own[border + 1 :]
    args = parse_flags(Prepare, own, command="bert-jax prepare")
    if options and args.runner is None:
        raise UserError(f"{options[0]} stands after --, where Beam's options go; they need --runner NAME")
    if args.workers is not None and args.runner is not None:
        raise UserError("--workers is for this machine alone; with --runner, give Beam's option after --")
    return dataclasses.replace(args, runner_options=tuple(options))


def run(args: Prepare) -> int:
    """Prepares and reports. Returns 0, or 75 if interrupted with a folder to resume from."""
    import sys

    from bert_jax.exit_status import SAVED
    from data_pipeline.preparing.prepare import prepare

    begun = time.perf_counter()
    vocabulary = _model_vocabulary(args)
    if args.vocab is not None and args.casing in (None, "uncased") and _has_capitals(args.vocab):
        print(f"warning: {args.vocab} has words with capitals, which uncased text never has: --casing cased?")
    try:
        with _terminated_like_interrupted(), _Bar() as bar:
            manifest = prepare(
                _settings(args, vocabulary),
                args.output,
                vocabulary=vocabulary,
                runner=_runner(args),
                overwrite=args.overwrite,
                on_progress=bar.show,
            )
    except KeyboardInterrupt:
        print("bert-jax: interrupted; run the same command again to resume", file=sys.stderr)
        return SAVED
    report(args.output, manifest, time.perf_counter() - begun)
    return 0


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt in the block, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, ctrl_c.raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def report(output: str, manifest: dict[str, Any], seconds: float) -> None:
    """Prints what was made, and warnings about what in it spoils BERT runs."""
    from rich.console import Console
    from rich.table import Table

    from data_pipeline.preparing.summary import warnings_about

    splits = manifest["splits"]
    table = Table("", "documents", "sentences", "tokens", "shards", "on disk", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for split, entry in splits.items():
        counts = [f"{entry[name]:,}" for name in ("documents", "sentences", "tokens")]
        size = sum(shard["bytes"] for shard in entry["shards"])
        table.add_row(split, *counts, str(len(entry["shards"])), _megabytes(size))
    tokenizer, text = manifest["tokenizer"], manifest["text_bytes"]
    console = Console()
    console.print(f"[bold]{output}[/bold]", highlight=False)
    console.print(table)
    console.print(
        f"vocabulary: {tokenizer['vocab_size']:,} pieces, {tokenizer['kind']}, {tokenizer['casing']}\n"
        f"text: {_megabytes(text)} in {seconds:.1f} s, {text / 1e6 / seconds:.2f} MB/s",
        highlight=False,
    )
    for line in warnings_about(manifest["statistics"]):
        console.print(f"[bold yellow]warning:[/bold yellow] {line}", highlight=False)


def _model_vocabulary(args: Prepare) -> Vocabulary | None:
    """The vocabulary in --vocab if that is a folder, else None. Raises UserError if --casing differs."""
    if args.vocab is None or not Path(args.vocab).is_dir():
        return None
    from bert_jax.formats.open_model import open_vocabulary

    vocabulary = open_vocabulary(Path(args.vocab))
    if args.casing not in (None, vocabulary.casing):
        raise UserError(f"the model in {args.vocab} is {vocabulary.casing}, not {args.casing}: drop --casing")
    return vocabulary


def _has_capitals(vocab: str) -> bool:
    """Whether words of a readable WordPiece vocabulary have capitals; False for a SentencePiece model.

    A SentencePiece model of the wrong casing is an error anyway.
    """
    file = Path(vocab)
    if file.suffix == ".model" or not file.is_file():
        return False
    with contextlib.suppress(UserError):
        return guess_casing(file.read_bytes(), file) == "cased"
    return False


def _runner(args: Prepare) -> "Runner":
    if args.runner is None:
        from data_pipeline.preparing.local_runner import LocalRunner

        return LocalRunner(args.workers)
    from data_pipeline.preparing.beam_runner import BeamRunner

    return BeamRunner(args.runner, args.runner_options)


def _settings(args: Prepare, vocabulary: Vocabulary | None) -> "PrepareSettings":
    from data_pipeline.preparing.inputs import Source
    from data_pipeline.preparing.prepare import PrepareSettings

    return PrepareSettings(
        source=Source(args.inputs, args.format, args.text_field, args.encoding_errors, args.tfds_data_dir),
        vocab=args.vocab,
        train_vocab=args.train_vocab,
        vocab_size=args.vocab_size,
        casing=args.casing or (vocabulary.casing if vocabulary else "uncased"),
        language=args.language,
        holdout=args.holdout,
    )


class _Bar:
    """One progress bar per pass, on stderr and only on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        console = Console(stderr=True)
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._tasks: dict[str, Any] = {}

    def show(self, name: str, done: int, total: int | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
