"""The corpus and tasks of a study: those that the command line names, or the installed documentation's."""

import functools
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from bert_jax.parallel.leases import Leases
from bert_jax.pretraining.data import make_documentation_corpus
from bert_jax.studies.directory import CORPUS_DIRECTORY, LEASES_DIRECTORY, TASKS_DIRECTORY
from bert_jax.study import Scale
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus.documents import MANIFEST_FILE
from data_pipeline.errors import UserError
from data_pipeline.preparing.documentation_tasks import write_tasks


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
            if not mark.exists():  # another worker may have made it meanwhile
                make()
