"""`bert-jax prepare`: text to a corpus of token ids, with a report of what was made."""

import contextlib
from pathlib import Path

from bert_jax.cli.flags.prepare import Prepare
from bert_jax.pretraining.preparation import make_corpus
from data_pipeline.corpus.vocabulary_file import Vocabulary, guess_casing
from data_pipeline.errors import UserError
from data_pipeline.preparing.inputs import Source
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.prepare import PrepareSettings, Runner


def run(args: Prepare) -> int:
    """Prepares and reports. Returns 0, or 75 if interrupted with a directory to resume from."""
    vocabulary = _model_vocabulary(args)
    if args.vocab is not None and args.casing in (None, "uncased") and _has_capitals(args.vocab):
        print(f"warning: {args.vocab} has words with capitals, which uncased text never has: --casing cased?")
    return make_corpus(
        _settings(args, vocabulary),
        args.output,
        vocabulary=vocabulary,
        runner=_runner(args),
        overwrite=args.overwrite,
    )


def _model_vocabulary(args: Prepare) -> Vocabulary | None:
    """The vocabulary in --vocab if that is a directory, else None. Raises UserError if --casing differs."""
    if args.vocab is None or not Path(args.vocab).is_dir():
        return None
    from bert_jax.formats.open_model import open_vocabulary  # imports jax, which nothing else here needs

    vocabulary = open_vocabulary(Path(args.vocab))
    if args.casing not in (None, vocabulary.casing):
        raise UserError(
            f"the vocabulary of {args.vocab} is {vocabulary.casing}, not {args.casing}; leave --casing out"
        )
    return vocabulary


def _has_capitals(vocab: str) -> bool:
    """Whether words of a readable WordPiece vocabulary have capitals; False for other kinds.

    Those are refused if their casing is wrong.
    """
    file = Path(vocab)
    if file.suffix in (".model", ".json") or not file.is_file():
        return False
    with contextlib.suppress(UserError):
        return guess_casing(file.read_bytes(), file) == "cased"
    return False


def _runner(args: Prepare) -> Runner:
    if args.runner is None:
        return LocalRunner(args.workers)
    from data_pipeline.preparing.beam_runner import BeamRunner  # needs the extra [beam]

    return BeamRunner(args.runner, args.runner_options)


def _settings(args: Prepare, vocabulary: Vocabulary | None) -> PrepareSettings:
    return PrepareSettings(
        source=Source(args.inputs, args.format, args.text_field, args.encoding_errors, args.tfds_data_dir),
        vocab=args.vocab,
        train_vocab=args.train_vocab,
        vocab_size=args.vocab_size,
        casing=args.casing or (vocabulary.casing if vocabulary else None),
        language=args.language,
        holdout=args.holdout,
        max_tokens_per_character=args.max_tokens_per_character,
        duplicates=args.duplicates,
        similarity=args.similarity,
    )
