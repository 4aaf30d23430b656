"""Reads the corpus and tasks of a study before its first run, to tell at once what cannot be measured."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.pretraining.data import check_vocabulary_size
from bert_jax.studies.directory import read_ended
from bert_jax.studies.measuring import arguments_of, path_of_data
from bert_jax.studies.plan import MeasuringJob, Plan
from bert_jax.study import Finetuned, HeldoutLM, Measure, MinimalPairs
from bert_jax.task import Metric
from bert_jax.tasks.finetuning.flags import Finetune
from bert_jax.tasks.finetuning.results import find_metric
from bert_jax.tasks.finetuning.run import check_directories, check_model
from bert_jax.workdir.finetuning import FineTuningRecord, read_record
from bert_jax.workdir.grid import TRIALS_DIRECTORY
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.config import split_corpora
from data_pipeline.corpus.store import Description, open_store
from data_pipeline.corpus.vocabulary_file import Vocabulary
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import check_store
from data_pipeline.tasks.minimal_pairs import fingerprint, read_minimal_pairs
from data_pipeline.tfds import is_tfds


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The data of a task that a study fine-tunes on."""

    arguments: Finetune[Any]
    train_rows: int
    train_tokens: int
    evaluated_tokens: int
    metrics: Mapping[str, Metric]
    """Those that may be a column, by name."""
    fingerprints: tuple[str, str]
    """Hashes of the training rows and of the development set."""


def check_data(
    plan: Plan, directory: Path, corpus: Description, tasks: str, *, retry: bool
) -> dict[tuple[str, str], Loaded]:
    """Reads the tasks of what is left to measure.

    Args:
      tasks: directory of the tasks' files.
      retry: whether failed jobs are left, too.

    Returns:
      `MeasuringJob.data_key` -> its data.

    Raises:
      UserError: some cannot be read; the message names all of them.
    """
    tokenizer = make_tokenizer(_check_corpus(plan, corpus))
    left: dict[tuple[str, str], MeasuringJob] = {}
    for job in plan.jobs:
        ended = read_ended(directory / job.path)
        if isinstance(job, MeasuringJob) and (ended is None or (retry and ended.error)):
            left.setdefault(job.data_key, job)
    found: dict[tuple[str, str], Loaded] = {}
    known: dict[tuple[Any, ...], Loaded] = {}
    wrong: list[str] = []
    lacking: dict[str, None] = {}
    for loading, job in left.items():
        if isinstance(job.measure, Finetuned | MinimalPairs) and not _is_there(tasks, job.measure.data):
            lacking[job.measure.data] = None
            continue
        try:
            match job.measure:
                case Finetuned():
                    found[loading] = _load(job, directory, tasks, tokenizer, known)
                case MinimalPairs(data=data):
                    pairs = read_minimal_pairs(Path(path_of_data(tasks, data)))
                    wrong += _check_same_pairs(plan, directory, job.measure, fingerprint(pairs))
        except UserError as error:
            wrong.append(str(error))
    wrong += _check_same_data(plan, directory, tasks, found)
    wrong += _check_models(plan, directory, tasks, found)
    if lacking:
        wrong.insert(0, f"--tasks {tasks} lacks {', '.join(lacking)}")
    metrics = {name: data.metrics for (name, _), data in found.items()}
    for measure in plan.study.measures:
        if measure.name in metrics:
            wrong += _check_metric(measure, metrics[measure.name])
    if wrong:
        raise UserError("; ".join(dict.fromkeys(wrong)))
    return found


def _check_corpus(plan: Plan, corpus: Description) -> Vocabulary:
    """Its vocabulary.

    Raises:
      UserError: it does not tell it, or a larger one than the models', or lacks the held-out text to measure;
        or an arm cannot be trained on it.
    """
    if corpus.vocabulary is None:
        raise UserError(
            f"{corpus.path} does not tell its vocabulary; a study needs a corpus made by `bert-jax prepare`"
        )
    check_vocabulary_size(corpus, plan.experiments[plan.study.base].model.vocab_size)
    if any(isinstance(measure, HeldoutLM) for measure in plan.study.measures):
        if not corpus.has_heldout:
            raise UserError(f"{corpus.path} has no held-out documents; prepare it with a larger --holdout")
        if len(split_corpora(corpus.path)) > 1:
            raise UserError(
                f"{corpus.path} names several corpora, and held-out text is measured of one; name one, or "
                f"leave the measure out"
            )
    for arm, experiment in plan.experiments.items():
        try:
            for split in ("train", "heldout") if corpus.has_heldout else ("train",):
                check_store(open_store(corpus.path, split, experiment.data.weights), experiment.data)
        except UserError as error:
            raise UserError(f"arm {arm}: {error}") from None
    return corpus.vocabulary


def _check_same_data(
    plan: Plan, directory: Path, tasks: str, found: Mapping[tuple[str, str], Loaded]
) -> Iterator[str]:
    """Which data is not what other jobs were fine-tuned and evaluated on, a line for each."""
    now = {_data_of(data.arguments): data for data in found.values()}
    before: dict[tuple[Any, ...], tuple[str, FineTuningRecord]] = {}
    for job in plan.jobs:
        if not isinstance(job, MeasuringJob) or not isinstance(job.measure, Finetuned):
            continue
        ended = read_ended(directory / job.path)
        if ended is None or ended.error:
            continue
        data = _data_of(arguments_of(job, directory, tasks))
        if data in now and data not in before:
            trials = (directory / job.path / TRIALS_DIRECTORY).glob(f"*/{CONFIG_FILE}")
            if file := next(trials, None):
                before[data] = job.measure.name, read_record(file.parent)
    for data, (name, record) in before.items():
        if (record.data_fingerprint, record.dev_fingerprint) != now[data].fingerprints:
            yield _changed_data(now[data].arguments.data, name)


def _check_same_pairs(plan: Plan, directory: Path, measure: MinimalPairs, now: str) -> Iterator[str]:
    """Whether other models were measured on other pairs, a line if so."""
    ended = [
        read_ended(directory / job.path)
        for job in plan.jobs
        if isinstance(job, MeasuringJob) and job.measure.name == measure.name
    ]
    before = {m.get("data_fingerprint", now) for job in ended if job for m in job.measurements}
    if before - {now}:
        yield _changed_data(measure.data, measure.name)


def _changed_data(data: str, measure: str) -> str:
    return (
        f"{data} is not the data on which this study has measured {measure} before; restore it, or name "
        "another --output"
    )


def _data_of(args: Finetune[Any]) -> tuple[Any, ...]:
    """Equal for jobs that load the same rows."""
    return args.task, args.data, args.settings


def _check_models(
    plan: Plan, directory: Path, tasks: str, found: Mapping[tuple[str, str], Loaded]
) -> Iterator[str]:
    """Which models cannot be fine-tuned on the data found, and why, a line for each arm."""
    for (arm, _), jobs in plan.measured.items():
        for job in jobs:
            if job.data_key in found:
                try:
                    check_model(arguments_of(job, directory, tasks), job.model.experiment.model)
                except UserError as error:
                    yield f"arm {arm}: {error}"


def _check_metric(measure: Measure, metrics: Mapping[str, Metric]) -> Iterator[str]:
    """What is wrong with the metric of a column, given those of its task."""
    metric = metrics.get(measure.metric)
    if metric is None:
        yield f"{measure.column}: no metric {measure.metric!r}; valid: {', '.join(metrics)}"
    elif measure.higher_is_better != (metric.better == "higher"):
        is_lower = metric.better == "lower"
        yield f"{measure.column}: {metric.better} {metric.name} is better; set lower_is_better={is_lower}"


def _is_there(tasks: str, data: str) -> bool:
    path = path_of_data(tasks, data)
    return is_tfds(path) or Path(path).exists()


def _load(
    job: MeasuringJob, directory: Path, tasks: str, tokenizer: Any, known: dict[tuple[Any, ...], Loaded]
) -> Loaded:
    """Loads the data of a job, unless `known` has it, which keeps it: others may differ in training alone."""
    args = arguments_of(job, directory, tasks)
    check_directories(args)
    args.training.trials()  # raises if their hyperparameters are impossible
    key = _data_of(args)
    if key not in known:
        known[key] = _read(args, tokenizer)
    find_metric(tuple(known[key].metrics.values()), args.training.metric)
    return dataclasses.replace(known[key], arguments=args)


def _read(args: Finetune[Any], tokenizer: Any) -> Loaded:
    data = args.settings.load(args.task, args.data, tokenizer)
    tokens = [int(rows.sequence_lengths().sum()) for rows in (data.train, *data.evaluated.values())]
    metrics = {metric.name: metric for metric in data.metrics}
    fingerprints = data.train.fingerprint(), data.dev_fingerprint
    return Loaded(args, len(data.train), tokens[0], sum(tokens[1:]), metrics, fingerprints)
