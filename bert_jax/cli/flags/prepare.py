"""The flags of `bert-jax prepare`."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import tyro

from bert_jax.cli.parsing import choices, parse_flags
from data_pipeline.corpus.vocabulary_file import Casing, TokenizerKind
from data_pipeline.errors import UserError
from data_pipeline.names import DuplicateHandling, EncodingErrors, Format, RunnerName


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Turn text into shards of token ids and a vocabulary.

    For example, to learn a vocabulary of 8,192 pieces from a directory of plain text:

      bert-jax prepare text/ --format text --train-vocab wordpiece \\
          --vocab-size 8192 --output corpora/mine

    Ctrl-C and SIGTERM end it with status 75: the same command resumes where it stopped.

    To use many machines, with Apache Beam, whose own options follow after --:

      bert-jax prepare INPUT... --output DIR --vocab FILE --runner flink \\
          -- --flink_master HOST:8081 --environment_type EXTERNAL \\
          --environment_config localhost:50000
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="INPUT...", help_behavior_hint="(required)"),
    ]
    """Files, directories, globs (.gz, .zst, .bz2, .xz too), TFDS data sets
    (tfds:wikipedia/20230601.en), installed-documentation."""
    output: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Directory to make; it appears only when it is complete."""
    format: Format = "auto"
    """sentences: one per line, a blank line between documents. lines: one
    document per line. text: a file is a document, blank lines separate
    paragraphs. auto: WikiExtractor, JSONL, TSV, CSV or Parquet, detected by
    name or first line."""
    vocab: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """A vocab.txt, a SentencePiece .model, a tokenizer.json, a vocab.json of
    byte-level BPE, or the directory of a model or a corpus. Give either this or --train-vocab."""
    train_vocab: Annotated[TokenizerKind | None, tyro.conf.arg(metavar=choices(TokenizerKind))] = None
    """Learn the vocabulary from the text; byte_bpe is byte-level BPE."""
    vocab_size: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Largest number of pieces to learn; needed with --train-vocab."""
    casing: Annotated[Casing | None, tyro.conf.arg(metavar=choices(Casing))] = None
    """uncased: lowercase, and strip accents (WordPiece) or fold case
    (SentencePiece; byte-level BPE only lowercases). By default that of --vocab; for a vocab.txt, which
    does not say it, and with --train-vocab, uncased."""
    language: Annotated[str, tyro.conf.arg(metavar="CODE")] = "en"
    """Language whose rules split text into sentences: an ISO 639 code, such as
    ja or pt-br. Languages without rules of their own split as en."""
    holdout: Annotated[float, tyro.conf.arg(metavar="FRACTION")] = 0.01
    """Fraction of documents held out for evaluation, at least two if there are four; 0 holds out none."""
    max_tokens_per_character: Annotated[float | None, tyro.conf.arg(metavar="RATIO")] = None
    """Leave out documents with more tokens per character than this, such as 0.3."""
    duplicates: DuplicateHandling = "keep"
    """exact: leave out documents whose text repeats an earlier one, but for
    case and white space. near: also those similar to an earlier one
    (MinHash)."""
    similarity: Annotated[float, tyro.conf.arg(metavar="FRACTION")] = 0.8
    """With --duplicates near: two documents are similar if they share at least
    this fraction of their five-word sequences (Jaccard similarity)."""
    text_field: Annotated[str, tyro.conf.arg(metavar="NAME")] = "text"
    """Field or column with the text, in JSONL, TSV, CSV, Parquet and TFDS."""
    encoding_errors: EncodingErrors = "strict"
    """strict: stop at bytes that are not UTF-8, and name them. replace: replace them by U+FFFD."""
    tfds_data_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Directory in which TFDS keeps its data."""
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
        raise UserError(f"{options[0]} is after --, where Beam's options go; they need --runner NAME")
    if args.workers is not None and args.runner is not None:
        raise UserError("--workers is for this machine alone; with --runner, give Beam's option after --")
    return dataclasses.replace(args, runner_options=tuple(options))
