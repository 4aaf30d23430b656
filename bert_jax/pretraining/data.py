"""The data of a run: its corpus, found or made and compared with the model, and the batches of training."""

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from flax.traverse_util import flatten_dict

from bert_jax.config import OptimizerConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives.experiment import Experiment
from bert_jax.objectives.task import PretrainingTask
from bert_jax.pretraining.preparation import make_corpus
from bert_jax.training.accounting import flops_left
from bert_jax.training.loop import TrainingData
from bert_jax.training.program import Program
from bert_jax.workdir.directory import corpus_of, find_vocabulary
from bert_jax.workdir.record import RunRecord
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.documents import MANIFEST_FILE
from data_pipeline.corpus.store import Description, describe
from data_pipeline.corpus.vocabulary_file import FILES, records_directory
from data_pipeline.errors import UserError
from data_pipeline.preparing.inputs import Source
from data_pipeline.preparing.prepare import PrepareSettings
from data_pipeline.preparing.vocabulary import SMALLEST_VOCABULARY
from data_pipeline.pretraining.batches import training_batches

# A phase is noted if its slots are fewer than this fraction of what the masking rate asks for.
_FEW_SLOTS = 0.95


def find_corpus(workdir: Path, experiment: Experiment, distributed: bool) -> Description:
    """The corpus of a run; that of the installed documentation is made in the work directory.

    Raises:
      UserError: there is no corpus, or several processes would have to make one.
      SystemExit: making it was interrupted.
    """
    named = experiment.data.corpus
    corpus = corpus_of(workdir, named)
    if named == INSTALLED_DOCUMENTATION and not Path(corpus, MANIFEST_FILE).exists():
        if distributed:
            raise UserError(
                f"--distributed makes no corpus: run `bert-jax prepare {INSTALLED_DOCUMENTATION}` on one "
                f"machine and pass its directory as --data.corpus"
            )
        make_documentation_corpus(Path(corpus), experiment.model.vocab_size)
    return describe(corpus)


def make_documentation_corpus(corpus: Path, vocab_size: int) -> None:
    """Makes a corpus of the installed documentation.

    Raises UserError if a vocabulary cannot be so small, and SystemExit if it was interrupted.
    """
    if vocab_size < (smallest := SMALLEST_VOCABULARY["wordpiece"]):
        raise UserError(
            f"model.vocab_size is {vocab_size}; the vocabulary of this corpus has at least {smallest} entries"
        )
    print("making a corpus of the installed packages' documentation", flush=True)
    settings = PrepareSettings(
        source=Source((INSTALLED_DOCUMENTATION,)),
        train_vocab="wordpiece",
        vocab_size=vocab_size,
        holdout=0.05,
    )
    # An interrupted start with other packages may have left an incomplete corpus, hence `overwrite`.
    if status := make_corpus(settings, str(corpus), overwrite=True):
        sys.exit(status)


def check_vocabulary_size(corpus: Description, rows: int) -> None:
    """Compares the size of a corpus's vocabulary with the model's; notes one that is over 10% smaller.

    Raises:
      UserError: the vocabulary has more ids than the model has embedding rows.
    """
    ids = corpus.vocabulary_size
    if ids is None:
        print(
            f"note: {corpus.path} does not tell its vocabulary, without which the model cannot be exported; "
            f"put the {FILES['wordpiece']} that the TFRecords were made with into "
            f"{records_directory(corpus.path)}",
            flush=True,
        )
        return
    if ids > rows:
        raise UserError(
            f"the vocabulary of {corpus.path} has {ids} entries, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size {ids}"
        )
    if ids < 0.9 * rows:
        print(
            f"note: model.vocab_size is {rows}, the vocabulary of {corpus.path} has {ids} entries, so "
            f"{rows - ids} rows are never trained; --model.vocab-size {ids} leaves them out",
            flush=True,
        )


def check_same_vocabulary(corpus: Description, workdir: Path, record: RunRecord) -> None:
    """Raises UserError if the ids of a corpus are not those of the run in `workdir`."""
    ours = corpus.vocabulary
    if ours is None:
        return  # TFRecords do not tell
    expected = find_vocabulary(workdir, record)
    if not corpus.is_prepared:  # whose casing is a guess
        ours = dataclasses.replace(ours, casing=expected.casing)
    if ours != expected:
        raise UserError(
            f"{corpus.path} has another vocabulary than the run in {workdir}; prepare the text with the "
            f"run's (--vocab {workdir})"
        )


def make_data(program: Program[PretrainingTask, Experiment], corpus: Description) -> TrainingData:
    """Returns the training batches of a run, of which each process makes only the rows that it holds.

    Raises:
      UserError: there is no batch, or the first one has too high a token id.
    """
    task, experiment = program.task, program.run
    batches = functools.partial(
        training_batches,
        corpus.path,
        experiment.data,
        seed=experiment.seed,
        global_batch_size=experiment.global_batch_size,
        num_train_steps=experiment.num_train_steps,
        rows=program.rows.ranges,
    )
    data = TrainingData(
        training=lambda step: map(task.select, batches(first_step=step)),
        identity={"seed": experiment.seed, "corpus": corpus.path, "fingerprint": corpus.fingerprint},
        work_left=functools.partial(flops_left, experiment),
    )
    first, rows = next(data.training(0)), experiment.model.vocab_size
    highest = max(int(first[key].max(initial=0)) for key in ("input_ids", "masked_lm_ids") if key in first)
    if highest >= rows:
        raise UserError(
            f"{corpus.path} holds the token id {highest}, but model.vocab_size is {rows}; "
            f"pass --model.vocab-size with the size of the vocabulary that it was made with"
        )
    return data


def note_unusual(experiments: Mapping[str, Experiment]) -> None:
    """Notes a warm-up that does not end, settings without effect, and phases with clearly fewer slots than
    the masking rate wants; what all experiments have in common once, and else with the names of the arms."""
    noted: dict[str, list[str]] = {}
    for name, experiment in experiments.items():
        for line in _unusual(experiment):
            noted.setdefault(line, []).append(name)
    for line, names in noted.items():
        arms = f"{', '.join(names)}: " if len(names) < len(experiments) else ""
        print(f"note: {arms}{line}", flush=True)


def check_exclusions(program: Program[PretrainingTask, Experiment]) -> None:
    """Raises UserError if a word of `decay_exclusions` is in no parameter's name; those of the default need
    not be."""
    given = set(program.run.optimizer.decay_exclusions) - set(OptimizerConfig.decay_exclusions)
    if not given:
        return
    names = {name for path in flatten_dict(program.shardings.params) for name in path}
    for word in sorted(given):
        if not any(word in name for name in names):
            raise UserError(
                f"optimizer.decay_exclusions has {word!r}, which is in no parameter's name; names are made "
                f"of {', '.join(sorted(names))}"
            )


def _unusual(experiment: Experiment) -> Iterator[str]:
    warmup = experiment.optimizer.warmup_steps
    if warmup >= experiment.num_train_steps:
        yield (
            f"the learning rate still rises at the last of {experiment.num_train_steps:,} steps, as "
            f"--optimizer.warmup-steps is {warmup:,}"
        )
    if experiment.optimizer.warmup_from and not warmup:
        yield (
            f"--optimizer.warmup-from {experiment.optimizer.warmup_from:g} has no effect, as "
            "--optimizer.warmup-steps is 0"
        )
    model = experiment.model
    if model.attention_window is not None and model.global_every == 1:
        yield f"--model.attention-window {model.attention_window} has no effect: --model.global-every is 1"
    if model.positions != "rotary" and model.rotary_base != ModelConfig.rotary_base:
        yield (
            f"--model.rotary-base {model.rotary_base:g} has no effect, as --model.positions is "
            f"{model.positions}"
        )
    rate = experiment.data.masking.highest_rate
    for number, phase in enumerate(experiment.data.phases):
        wanted, slots = round(rate * phase.max_seq_length), phase.max_predictions_per_seq
        if 0 < slots < _FEW_SLOTS * wanted:
            yield (
                f"of {phase.max_seq_length} tokens at most {slots} are predicted, "
                f"{slots / phase.max_seq_length:.1%} rather than {rate:.0%}; "
                f"data.phases.{number}.max_predictions_per_seq {wanted} has room for all"
            )
