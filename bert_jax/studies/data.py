"""The corpus and tasks of a study: those that the command line names, or the installed documentation's."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.model_source import ModelSource
from bert_jax.parallel.leases import Leases
from bert_jax.pretraining.data import make_documentation_corpus
from bert_jax.studies.directory import CORPUS_DIRECTORY, LEASES_DIRECTORY, TASKS_DIRECTORY, read_ended
from bert_jax.studies.measuring import finetune_arguments, path_of_data
from bert_jax.studies.plan import Measuring, Plan
from bert_jax.study import Finetuned, HeldoutLM, Measure, MinimalPairs, Scale
from bert_jax.task import Metric
from bert_jax.tasks.finetuning.flags import Finetune
from bert_jax.tasks.finetuning.results import find_metric
from bert_jax.tasks.finetuning.run import check_directories, check_model
from bert_jax.workdir.finetuning import FineTuningRecord, read_record
from bert_jax.workdir.grid import TRIALS_DIRECTORY
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.config import INSTALLED_DOCUMENTATION, split_corpora
from data_pipeline.corpus.documents import MANIFEST_FILE
from data_pipeline.corpus.store import Description
from data_pipeline.errors import UserError
from data_pipeline.preparing.documentation_tasks import write_tasks
from data_pipeline.tasks.minimal_pairs import read_minimal_pairs
from data_pipeline.tfds import is_tfds


def name_data(directory: Path, scale: Scale, corpus: str, tasks: str, needs_tasks: bool) -> tuple[str, str]:
    """Where the corpus and the tasks lie, or will when they are made; "" for tasks that no measure needs.

    Raises:
      UserError: the command line names none, and the scale brings none.
    """
    brought = scale.corpus == INSTALLED_DOCUMENTATION
    if not corpus:
        if not scale.corpus:
            raise UserError("no corpus: pass --corpus DIR; `bert-jax prepare` makes one from text")
        corpus = str(directory / CORPUS_DIRECTORY) if brought else scale.corpus
    if not tasks and needs_tasks:
        if not brought:
            raise UserError("no tasks: pass --tasks DIR, with a directory for each data set")
        tasks = str(directory / TASKS_DIRECTORY)
    return corpus, tasks


def makes_data(directory: Path, corpus: str, tasks: str) -> bool:
    """Whether a study uses data of the installed documentation, in its own directory."""
    own = {directory / CORPUS_DIRECTORY, directory / TASKS_DIRECTORY}
    return bool(own & {Path(corpus), Path(tasks)})


def make_data(directory: Path, corpus: str, tasks: str, vocab_size: int) -> None:
    """Makes corpus and tasks of the installed documentation, those that a study has of its own and lacks.

    Raises:
      SystemExit: making them was interrupted.
    """
    leases = Leases(directory / LEASES_DIRECTORY)
    own_corpus, own_tasks = directory / CORPUS_DIRECTORY, directory / TASKS_DIRECTORY
    if own_corpus == Path(corpus):
        make = functools.partial(make_documentation_corpus, own_corpus, vocab_size)
        _make_once(leases, own_corpus, own_corpus / MANIFEST_FILE, make)
    if own_tasks == Path(tasks):
        _make_once(leases, own_tasks, own_tasks, functools.partial(write_tasks, own_tasks))


def _make_once(leases: Leases, path: Path, mark: Path, make: Callable[[], object]) -> None:
    """Makes what lies at `path`, unless `mark` shows that it is complete."""
    if not mark.exists():
        with leases.hold_when_free(PurePosixPath(path.name)):
            if not mark.exists():  # another machine may have made it meanwhile
                make()


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


def check_data(plan: Plan, directory: Path, corpus: Description, tasks: str) -> dict[tuple[str, str], Loaded]:
    """Reads the tasks of what is left to measure.

    Returns:
      `Measuring.loading` -> its data.

    Raises:
      UserError: some cannot be read; the message names all of them.
    """
    if corpus.vocabulary is None:
        raise UserError(
            f"{corpus.path} does not tell its vocabulary; a study needs a corpus made by `bert-jax prepare`"
        )
    if any(isinstance(measure, HeldoutLM) for measure in plan.study.measures_at(plan.scale)):
        if not corpus.has_heldout:
            raise UserError(f"{corpus.path} has no held-out documents; prepare it with a larger --holdout")
        if len(split_corpora(corpus.path)) > 1:
            raise UserError(f"{corpus.path} are several corpora; held-out text is measured of one")
    tokenizer = make_tokenizer(corpus.vocabulary)
    left: dict[tuple[str, str], Measuring] = {}
    for job in plan.jobs:
        if isinstance(job, Measuring) and not read_ended(directory, job):
            left.setdefault(job.loading, job)
    found: dict[tuple[str, str], Loaded] = {}
    wrong: list[str] = []
    lacking: dict[str, None] = {}
    for loading, job in left.items():
        if isinstance(job.measure, Finetuned | MinimalPairs) and not _is_there(tasks, job.measure.data):
            lacking[job.measure.data] = None
            continue
        try:
            match job.measure:
                case Finetuned():
                    found[loading] = _load(job, directory, tasks, tokenizer)
                case MinimalPairs(data=data):
                    read_minimal_pairs(Path(path_of_data(tasks, data)))
        except UserError as error:
            wrong.append(str(error))
    wrong += _check_same_data(plan, directory, found)
    wrong += _check_models(plan, directory, tasks)
    if lacking:
        wrong.insert(0, f"--tasks {tasks} lacks {', '.join(lacking)}")
    metrics = {name: data.metrics for (name, _), data in found.items()}
    for measure in plan.study.measures_at(plan.scale):
        if measure.name in metrics:
            wrong += _check_metric(measure, metrics[measure.name])
    if wrong:
        raise UserError("; ".join(dict.fromkeys(wrong)))
    return found


def _check_same_data(plan: Plan, directory: Path, found: Mapping[tuple[str, str], Loaded]) -> Iterator[str]:
    """Which data is not what other jobs of a measure were fine-tuned and evaluated on, a line for each."""
    before: dict[tuple[str, str], FineTuningRecord] = {}
    for job in plan.jobs:
        if isinstance(job, Measuring) and job.loading in found and read_ended(directory, job):
            for file in (directory / job.path / TRIALS_DIRECTORY).glob(f"*/{CONFIG_FILE}"):
                before.setdefault(job.loading, read_record(file.parent))
    for loading, record in before.items():
        if (record.data_fingerprint, record.dev_fingerprint) != found[loading].fingerprints:
            yield (
                f"{found[loading].arguments.data} is not the data on which this study has measured "
                f"{loading[0]} before; restore it, or name another --output"
            )


def _check_models(plan: Plan, directory: Path, tasks: str) -> Iterator[str]:
    """What is wrong with the models of the jobs for their fine-tuning, a line for each arm."""
    for (arm, _), jobs in plan.measured.items():
        for job in jobs:
            if isinstance(job.measure, Finetuned):
                try:
                    check_model(_arguments(job, directory, tasks), job.model.experiment.model)
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


def _arguments(job: Measuring, directory: Path, tasks: str) -> Finetune[Any]:
    assert isinstance(job.measure, Finetuned)
    return finetune_arguments(
        job.measure.task,
        job.flags,
        ModelSource(directory / job.model.path),
        path_of_data(tasks, job.measure.data),
        directory / job.path,
    )


def _load(job: Measuring, directory: Path, tasks: str, tokenizer: Any) -> Loaded:
    args = _arguments(job, directory, tasks)
    check_directories(args)
    args.training.trials()  # raises if their hyperparameters are impossible
    data = args.settings.load(args.task, args.data, tokenizer)
    find_metric(data.metrics, args.training.metric)
    tokens = [int(rows.sequence_lengths().sum()) for rows in (data.train, *data.evaluated.values())]
    metrics = {metric.name: metric for metric in data.metrics}
    fingerprints = data.train.fingerprint(), data.dev_fingerprint
    return Loaded(args, len(data.train), tokens[0], sum(tokens[1:]), metrics, fingerprints)
