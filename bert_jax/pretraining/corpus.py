"""The corpus of a run: found or made, and compared with the vocabulary of the model."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

from bert_jax.formats import run
from bert_jax.objectives.experiment import Experiment
from bert_jax.pretraining.arguments import Pretrain
from bert_jax.pretraining.preparation import make_corpus
from bert_jax.workdir.directory import CORPUS_DIRECTORY
from bert_jax.workdir.record import RunRecord
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.documents import MANIFEST_FILE
from data_pipeline.corpus.store import find_vocabulary, is_prepared, vocabulary_size
from data_pipeline.corpus.vocabulary_file import FILES, records_directory
from data_pipeline.errors import UserError
from data_pipeline.preparing.inputs import Source
from data_pipeline.preparing.prepare import PrepareSettings


def find_corpus(args: Pretrain) -> str:
    """The path of a run's corpus; that of the installed documentation is made in the work directory.

    Raises:
      UserError: several processes would have to make a corpus.
      SystemExit: making it was interrupted.
    """
    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        return args.experiment.data.corpus
    corpus = args.workdir / CORPUS_DIRECTORY
    if (corpus / MANIFEST_FILE).exists():
        return str(corpus)
    if args.distributed:
        raise UserError(
            f"--distributed makes no corpus: run `bert-jax prepare {INSTALLED_DOCUMENTATION}` on one "
            f"machine and pass its directory as --data.corpus"
        )
    print("making a corpus of the installed packages' documentation", flush=True)
    settings = PrepareSettings(
        source=Source((INSTALLED_DOCUMENTATION,)),
        train_vocab="wordpiece",
        vocab_size=args.experiment.model.vocab_size,
        holdout=0.05,
    )
    # An interrupted start with other packages may have left an incomplete corpus, hence `overwrite`.
    if status := make_corpus(settings, str(corpus), overwrite=True):
        sys.exit(status)
    return str(corpus)


def check_vocabulary_size(experiment: Experiment, corpus: str, say: Callable[[str], None]) -> None:
    """Compares the size of the corpus's vocabulary with the model's; notes one that is over 10% smaller.

    Raises:
      UserError: the vocabulary has more ids than the model has embedding rows, or there is no corpus.
    """
    ids, rows = vocabulary_size(corpus), experiment.model.vocab_size
    if ids is None:
        say(
            f"note: {corpus} does not tell its vocabulary, without which the model cannot be exported; put "
            f"the {FILES['wordpiece']} that the TFRecords were made with into {records_directory(corpus)}"
        )
        return
    if ids > rows:
        raise UserError(
            f"the vocabulary of {corpus} has {ids} entries, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size {ids}"
        )
    if ids < 0.9 * rows:
        say(f"note: model.vocab_size is {rows}, the vocabulary of {corpus} has {ids} entries")


def check_same_vocabulary(workdir: Path, record: RunRecord, corpus: str) -> None:
    """Raises UserError if the ids of a corpus are not those of the run, or there is no corpus."""
    vocabulary = find_vocabulary(corpus)
    if vocabulary is None:
        return  # TFRecords do not tell
    expected = run.find_vocabulary(workdir, record)
    if not is_prepared(corpus):  # whose casing is a guess
        vocabulary = dataclasses.replace(vocabulary, casing=expected.casing)
    if vocabulary != expected:
        raise UserError(
            f"{corpus} has another vocabulary than the run in {workdir}; prepare the text with the run's "
            f"(--vocab {workdir})"
        )
