"""A run's folder: its lock, the checks before a run uses it, and the tokenizer and corpus stored in it."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from bert_jax.training.checkpoints import FOLDER as CHECKPOINTS_FOLDER
from bert_jax.training.metric_log import METRICS_FILE, TENSORBOARD_FOLDER
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.atomic import atomically
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.errors import UserError
from data_pipeline.folders import check_path, lock_file
from data_pipeline.vocabulary_file import TOKENIZER_FOLDER, read_records_vocabulary, write_vocabulary

CORPUS_FOLDER = "corpus"
"""Folder of the corpus that a run makes for itself from the installed documentation."""
_LOCK = "lock"
# A run writes these after its config.json, so in a folder without that file they are not a run's.
_REPLACED = (TOKENIZER_FOLDER, METRICS_FILE, TENSORBOARD_FOLDER, CHECKPOINTS_FOLDER)


@contextlib.contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Locks the folder against other processes; the lock of a process that died is free again.

    Raises:
      UserError: another process uses the folder, the folder cannot be made, or its file system has no locks.
    """
    check_path(workdir, "work directory")
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"work directory {workdir} is a file; name a folder") from None
    with (workdir / _LOCK).open("a") as file:
        busy = f"work directory {workdir} is in use by another process; wait for it or name another folder"
        lock_file(file, workdir, busy)
        yield


def mark(workdir: Path) -> str:
    """Writes a random token into the lock file and returns it; for the process that holds the lock."""
    token = secrets.token_hex(8)
    (workdir / _LOCK).write_text(token)
    return token


def check_mark(workdir: Path, token: str) -> None:
    """Raises UserError if the lock file lacks the token, so that the folder is not the shared one."""
    path = workdir / _LOCK
    if not path.exists() or path.read_text() != token:
        raise UserError(
            f"{workdir} is not the folder that process 0 works in; --workdir must lie on storage that all "
            f"processes share"
        )


def check_apart(workdir: Path, corpus: str) -> None:
    """Raises UserError if the work directory is the corpus's folder, also through links."""
    if _same(workdir, Path(corpus)):
        raise UserError(f"--workdir {workdir} is the folder of data.corpus; name another one for the run")


def check_free(workdir: Path) -> None:
    """Raises UserError if the folder is not a run's but holds files that a run would overwrite or extend."""
    if (workdir / CONFIG_FILE).exists():
        return
    if found := [name for name in _REPLACED if os.path.lexists(workdir / name)]:
        raise UserError(
            f"work directory {workdir} holds {', '.join(found)} but no {CONFIG_FILE}, so it is not that of a "
            f"run; name another folder"
        )


def copy_tokenizer(corpus: str, workdir: Path) -> None:
    """Copies the corpus's tokenizer into the work directory, so that exporting needs only that folder.

    For TFRecords, the tokenizer is made from the `vocab.txt` beside them, if there is one.
    """
    source, target = Path(corpus) / TOKENIZER_FOLDER, workdir / TOKENIZER_FOLDER
    vocabulary = None if source.is_dir() else read_records_vocabulary(corpus)
    if _same(source, target) or not (source.is_dir() or vocabulary):
        return
    with atomically(target) as partial:
        if vocabulary:
            write_vocabulary(partial, vocabulary)
        else:
            shutil.copytree(source, partial)
        remove_tokenizer(workdir)  # a folder that is not empty cannot be replaced


def remove_tokenizer(workdir: Path) -> None:
    """Removes the work directory's copy of the tokenizer, if there is one."""
    shutil.rmtree(workdir / TOKENIZER_FOLDER, ignore_errors=True)


def corpus_of(workdir: Path, named: str) -> str:
    """The corpus's path for a run whose setting data.corpus is `named`."""
    return str(workdir / CORPUS_FOLDER) if named == INSTALLED_DOCUMENTATION else named


def _same(one: Path, other: Path) -> bool:
    return os.path.exists(one) and os.path.exists(other) and one.samefile(other)
