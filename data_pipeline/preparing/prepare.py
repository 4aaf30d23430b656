"""Text to a corpus: find, read, split, tokenise, write and count. Ends whole, or can be resumed.

This module does what is done once; a runner makes the shards, on this machine or on many.
"""

import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import Any, Protocol

from data_pipeline.atomic import atomically, write_json
from data_pipeline.corpus.documents import FORMAT_VERSION, MANIFEST_FILE
from data_pipeline.corpus.tokenizer import Tokenizer, load_tokenizer, load_vocabulary, take_vocabulary
from data_pipeline.corpus.vocabulary_file import Casing, TokenizerKind, Vocabulary
from data_pipeline.directories import check_path, directory_of, follow_links
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.names import DuplicateHandling, Split
from data_pipeline.preparing.duplicates import find_duplicates
from data_pipeline.preparing.inputs import InputFile, Inputs, Source, find_inputs
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.near_duplicates import LOWEST_SIMILARITY
from data_pipeline.preparing.partial import check_output, claim, discard, partial_directory, publish
from data_pipeline.preparing.progress import Progress, count_bytes
from data_pipeline.preparing.sentences import check_language
from data_pipeline.preparing.shard_texts import (
    SHARD_TEXT_BYTES,
    ShardJob,
    as_text,
    digest,
    find_heldout_threshold,
)
from data_pipeline.preparing.summary import Totals
from data_pipeline.preparing.versions import library_versions
from data_pipeline.preparing.vocabulary import SAMPLE_BYTES, check_vocab_size, sample_texts, train_vocabulary


class Runner(Protocol):
    """Makes the shards, on one machine or many. Their content does not depend on the runner."""

    @property
    def workers(self) -> int | None:
        """Processes of this machine for what is done once; None: one per core."""

    def make_shards(self, job: ShardJob, on_progress: Progress) -> Totals:
        """Makes every shard that `job.directory` lacks, with its tokenizer, and returns the totals of all.

        Raises UserError if something is wrong with the inputs, Unfinished if the same call can resume from
        the shards made so far.
        """
        ...


EVERY_CORE = LocalRunner()


@dataclasses.dataclass(frozen=True)
class PrepareSettings:
    """Everything that decides the bytes of a corpus, except the text itself."""

    source: Source
    vocab: str | None = None
    """A vocab.txt, a SentencePiece .model, a tokenizer.json, byte-level BPE's vocab.json, or a directory
    whose vocabulary is passed to `prepare`. Give exactly one of `vocab` and `train_vocab`."""
    train_vocab: TokenizerKind | None = None
    vocab_size: int | None = None
    """Maximum number of pieces to learn, with `train_vocab`."""
    casing: Casing | None = None
    """None: that of the file `vocab` if it says one, else uncased."""
    language: str = "en"
    """Code of the language whose rules split text into sentences."""
    holdout: float = 0.01
    """Fraction of the documents held out for evaluation."""
    max_tokens_per_character: float | None = None
    """Documents with more tokens for each of their characters are left out; None: none."""
    duplicates: DuplicateHandling = "keep"
    """Which documents that repeat earlier ones are left out."""
    similarity: float = 0.8
    """Jaccard similarity of their word 5-grams at which documents are near duplicates."""

    def __post_init__(self) -> None:
        if (self.vocab is None) == (self.train_vocab is None):
            raise UserError(
                "give exactly one of --vocab FILE and --train-vocab wordpiece|sentencepiece|byte_bpe"
            )
        if self.train_vocab is not None and self.vocab_size is None:
            raise UserError("--train-vocab needs --vocab-size N")
        if self.vocab is not None and self.vocab_size is not None:
            raise UserError("--vocab has a size of its own; leave --vocab-size out")
        if self.train_vocab is not None and self.vocab_size is not None:
            check_vocab_size(self.vocab_size, self.train_vocab)
        if not 0 <= self.holdout < 1:
            raise UserError(f"--holdout is {self.holdout}; it must be at least 0 and below 1")
        most = self.max_tokens_per_character
        if most is not None and not 0 < most < math.inf:
            raise UserError(f"--max-tokens-per-character is {most}; it must be above 0, such as 0.3")
        if not LOWEST_SIMILARITY <= self.similarity <= 1:
            raise UserError(f"--similarity is {self.similarity}; it must be from {LOWEST_SIMILARITY} to 1")
        if self.duplicates != "near" and self.similarity != PrepareSettings.similarity:
            raise UserError(f"--similarity goes with --duplicates near, not with {self.duplicates}")
        check_language(self.language)


def prepare(
    settings: PrepareSettings,
    output: str | Path,
    *,
    vocabulary: Vocabulary | None = None,
    runner: Runner = EVERY_CORE,
    overwrite: bool = False,
    on_progress: Progress = lambda name, done, total: None,
) -> dict[str, Any]:
    """Makes the corpus `output` and returns its manifest.

    Args:
      vocabulary: the vocabulary in the directory `settings.vocab`; None if that is a file or None.
      runner: makes the shards; by default with one process per core of this machine.
      overwrite: replace a corpus of that name, and what an interrupted run of another command left.

    Raises:
      UserError: bad settings or input; nothing is left behind but shards of an earlier call.
        Anything else that stops it leaves a directory from which the same call resumes.
    """
    check_path(output, "--output")
    output = follow_links(Path(output))  # the corpus grows beside the target of a link, and replaces that
    check_output(output, overwrite)
    inputs = find_inputs(settings.source)
    _check_apart(output, inputs)
    given = _given_tokenizer(settings, vocabulary)
    if next(inputs.documents(), None) is None:
        raise UserError(f"no text in {', '.join(settings.source.inputs)}; the inputs hold no document")
    record = _record(settings, inputs, given)
    with directory_of(output), claim(output, record, overwrite) as directory:
        made_before = any(directory.glob("*.arrow"))
        try:
            check_output(output, overwrite)  # another process may have made it before this one got the lock
            duplicates = find_duplicates(
                inputs, settings.duplicates, settings.similarity, directory, runner.workers, on_progress
            )
            inputs = duplicates.leave_out(inputs)
            heldout_threshold = find_heldout_threshold(inputs.documents(), settings.holdout)
            most = settings.max_tokens_per_character
            job = ShardJob(directory, inputs, heldout_threshold, settings.language, most)
            manifest = _fill(job, settings, given, runner, on_progress)
            manifest["left_out_duplicates"] = duplicates.counts()
        except Unfinished:
            raise
        except UserError:
            if not made_before:
                discard(directory)
            raise
        write_json(directory / MANIFEST_FILE, manifest)
        check_output(output, overwrite)  # preparing may take days, in which someone else may have made it
        publish(directory, output)
    return manifest


def _given_tokenizer(settings: PrepareSettings, vocabulary: Vocabulary | None) -> Tokenizer | None:
    if settings.vocab is None:
        return None
    place = Path(settings.vocab)
    return take_vocabulary(vocabulary, place) if vocabulary else load_vocabulary(place, settings.casing)


def _fill(
    job: ShardJob, settings: PrepareSettings, given: Tokenizer | None, runner: Runner, on_progress: Progress
) -> dict[str, Any]:
    """Makes the tokenizer and the shards in `job.directory`; returns the manifest."""
    tokenizer = _settle_tokenizer(job, settings, given, on_progress)
    totals = runner.make_shards(job, on_progress)
    splits = totals.splits()
    _check_not_empty(splits, settings, totals.filtered_documents)
    return {
        "format_version": FORMAT_VERSION,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": library_versions(),
        "settings": dataclasses.asdict(settings),
        "tokenizer": {
            "kind": tokenizer.kind,
            "casing": tokenizer.casing,
            "vocab_size": tokenizer.vocab_size,
            "sha256": tokenizer.sha256,
        },
        "text_bytes": totals.text_bytes,
        "filtered_documents": totals.filtered_documents,
        "splits": splits,
        "statistics": totals.statistics(),
    }


def _settle_tokenizer(
    job: ShardJob, settings: PrepareSettings, given: Tokenizer | None, on_progress: Progress
) -> Tokenizer:
    """Returns the interrupted run's tokenizer, or else the given one, or one learned from training text."""
    if job.tokenizer_directory.exists():
        return load_tokenizer(job.tokenizer_directory)
    tokenizer = given or _learn(job, settings, on_progress)
    with atomically(job.tokenizer_directory) as partial:
        tokenizer.save(partial)
    return tokenizer


def _learn(job: ShardJob, settings: PrepareSettings, on_progress: Progress) -> Tokenizer:
    assert settings.train_vocab is not None
    assert settings.vocab_size is not None
    on_bytes = count_bytes(job.inputs, "choosing text for the vocabulary", on_progress)
    digests = ((digest(document), document) for document in job.inputs.documents(on_bytes))
    training = (
        (found.sample, as_text(document))
        for found, document in digests
        if found.split >= job.heldout_threshold
    )
    texts = sample_texts(training, SAMPLE_BYTES[settings.train_vocab])
    if not texts:
        raise _all_held_out(settings)
    on_progress("learning the vocabulary", 0, None)
    return train_vocabulary(texts, settings.train_vocab, settings.vocab_size, settings.casing or "uncased")


def _record(settings: PrepareSettings, inputs: Inputs, given: Tokenizer | None) -> dict[str, Any]:
    """Everything that must be unchanged for a restart to resume."""
    values = dataclasses.asdict(settings)
    values |= values.pop("source")
    return {
        **values,
        "vocab": given.sha256 if given else None,
        "inputs": inputs.fingerprint(),
        "versions": library_versions(),
        "shard_text_bytes": SHARD_TEXT_BYTES,
    }


def _check_not_empty(splits: dict[Split, dict[str, Any]], settings: PrepareSettings, filtered: int) -> None:
    train, heldout = splits["train"]["documents"], splits["heldout"]["documents"]
    if not train and filtered:
        raise UserError(
            f"--max-tokens-per-character {settings.max_tokens_per_character} leaves no document to train on "
            f"({filtered} filtered); give a higher one"
        )
    if not train and not heldout:
        raise UserError(f"no text in {', '.join(settings.source.inputs)}; its documents hold no token")
    if not train:
        raise _all_held_out(settings)


def _all_held_out(settings: PrepareSettings) -> UserError:
    return UserError(
        f"--holdout {settings.holdout} holds out every document, since it holds out at least one; "
        f"give more documents (with --format text, a file is one), or --holdout 0 to train on all"
    )


def _check_apart(output: Path, inputs: Inputs) -> None:
    """Raises UserError if the output lies inside an input directory, or an input inside the output."""
    read = {item.path.parent: item.path for item in inputs.items if isinstance(item, InputFile)}
    for written in (output, partial_directory(output)):
        for directory in inputs.directories():
            if written.resolve().is_relative_to(directory.resolve()):
                raise UserError(f"{written} lies inside the input {directory}; give an --output outside it")
        for directory, file in read.items():
            if directory.resolve().is_relative_to(written.resolve()):
                raise UserError(f"the input {file} lies inside {written}; give another --output")
