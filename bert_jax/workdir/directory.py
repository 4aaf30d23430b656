"""A run's directory: its lock, the checks before a run uses it, and what else is stored in it."""

import contextlib
import glob
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import jax

from bert_jax.parallel import bucket_lease
from bert_jax.workdir.record import RunRecord
from data_pipeline.atomic import atomically, copy_tree
from data_pipeline.bucket import BucketDirectory, is_bucket
from data_pipeline.config import INSTALLED_DOCUMENTATION, split_corpora
from data_pipeline.corpus.vocabulary_file import (
    FILES,
    TOKENIZER_DIRECTORY,
    Vocabulary,
    read_records_vocabulary,
    read_vocabulary,
    records_directory,
    write_vocabulary,
)
from data_pipeline.directories import check_writable, directory_of, lock_file
from data_pipeline.errors import InUseError, UserError
from data_pipeline.stand_in import COMPILED_DIRECTORY, bucket_of, fetch, pull_changes, push

CORPUS_DIRECTORY = "corpus"
"""Directory of the corpus that a run makes for itself from the installed documentation."""
_SECONDS_BETWEEN_COPIES = 30.0
_LOCK = "lock"


@contextlib.contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Locks the directory against other processes; the lock of a process that died is free again.

    A directory that was made for the lock and holds no work at the end of the block is removed again.

    Raises:
      UserError: another process uses the directory, the directory cannot be made, or its file system has no
        locks.
    """
    bucket = bucket_of(workdir)
    with _lock_file(workdir), _held(workdir, bucket) if bucket else contextlib.nullcontext():
        yield


def is_in_use(workdir: Path) -> bool:
    """Whether another process has locked the directory, here or in a file system that it shares.

    Raises UserError if the file system has no locks.
    """
    if not (workdir / _LOCK).exists():
        return False
    try:
        with _lock_file(workdir):
            return False
    except InUseError:
        return True


@contextlib.contextmanager
def _lock_file(workdir: Path) -> Iterator[None]:
    check_writable(workdir, "work directory")
    with directory_of(workdir):
        held = None
        while held is None:
            is_new = not workdir.exists()
            held = _try_to_lock(workdir)
        with held:
            try:
                yield
            finally:
                if is_new and {path.name for path in workdir.iterdir()} <= {_LOCK, COMPILED_DIRECTORY}:
                    shutil.rmtree(workdir)


def _try_to_lock(workdir: Path) -> IO[str] | None:
    """Locks the directory, which is made if need be, until the returned file is closed.

    Returns None if the process that had made it has just removed it. The lock is then on a file that nobody
    else will find, even if the directory is there again.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"work directory {workdir} is a file; name a directory") from None
    busy = f"work directory {workdir} is in use by another process; wait for it or name another directory"
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as attempt:
        file = attempt.enter_context((workdir / _LOCK).open("a"))
        lock_file(file, workdir, busy)
        if os.path.samestat(os.fstat(file.fileno()), (workdir / _LOCK).stat()):
            attempt.pop_all()
            return file
    return None


@contextlib.contextmanager
def _held(workdir: Path, bucket: BucketDirectory) -> Iterator[None]:
    """Inside the block no other machine works in the directory of the bucket, which is kept up to date."""
    with contextlib.ExitStack() as held:
        held.enter_context(bucket_lease.hold(bucket))
        pull_changes(workdir)  # of the process that has held it until now
        held.enter_context(_repeated(lambda: push(workdir), _SECONDS_BETWEEN_COPIES))
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError, UserError):
                push(workdir)
            raise
        push(workdir)


@contextlib.contextmanager
def _repeated(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Calls `action` in another thread every so many seconds inside the block.

    A failure of the disk, of a bucket or of the network is left to the next time.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            with contextlib.suppress(OSError, UserError):
                action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def mark(workdir: Path) -> str:
    """Writes a random token into the lock file and returns it; for the process that holds the lock."""
    token = secrets.token_hex(8)
    if bucket := bucket_of(workdir):
        bucket.write(_LOCK, token.encode())
    else:
        (workdir / _LOCK).write_text(token)
    return token


def check_mark(workdir: Path, token: str) -> None:
    """Raises UserError if the lock file lacks the token, so that the directory is not the shared one."""
    path, bucket = workdir / _LOCK, bucket_of(workdir)
    if bucket:
        content, _ = bucket.read(_LOCK) or (b"", 0)
        found = content.decode(errors="replace")
    else:
        found = path.read_text() if path.exists() else ""
    if found != token:
        raise UserError(
            f"{workdir} is not the directory that process 0 works in; --workdir must lie on storage that all "
            f"processes share"
        )


def check_apart(workdir: Path, corpus: str) -> None:
    """Raises UserError if the work directory is that of a corpus in `data.corpus`, also through links."""
    if any(_same(workdir, Path(name)) for name in split_corpora(corpus)):
        raise UserError(f"--workdir {workdir} is the directory of data.corpus; name another one for the run")


def copy_tokenizer(corpus: str, workdir: Path) -> None:
    """Copies the corpus's tokenizer into the work directory, so that exporting needs only that directory.

    For TFRecords, the tokenizer is made from the `vocab.txt` beside them, if there is one.
    Several corpora have the same.
    """
    corpus = split_corpora(corpus)[0]
    source, target = Path(corpus) / TOKENIZER_DIRECTORY, workdir / TOKENIZER_DIRECTORY
    vocabulary = None if source.is_dir() else read_records_vocabulary(corpus)
    if _same(source, target) or not (source.is_dir() or vocabulary):
        return
    with atomically(target) as partial:
        if vocabulary:
            write_vocabulary(partial, vocabulary)
        else:
            copy_tree(source, partial)
        remove_tokenizer(workdir)  # a directory that is not empty cannot be replaced


def find_vocabulary(workdir: Path, record: RunRecord) -> Vocabulary:
    """The vocabulary that a run was trained with.

    Raises:
      UserError: it is neither in the work directory nor in the corpus, which may have been removed.
    """
    corpus = split_corpora(record.experiment.data.corpus)[0]
    places = [workdir / TOKENIZER_DIRECTORY, Path(corpus) / TOKENIZER_DIRECTORY]
    places.append(workdir / CORPUS_DIRECTORY / TOKENIZER_DIRECTORY)
    for place in places:
        if place.is_dir():
            return read_vocabulary(place)
    if vocabulary := read_records_vocabulary(corpus):
        return vocabulary
    raise UserError(
        f"no tokenizer of this run in {', '.join(map(str, places))}; copy the directory `tokenizer` of its "
        f"corpus to {places[0]}, or, if the corpus is of TFRecords, put the {FILES['wordpiece']} that they "
        f"were made with into {records_directory(corpus)}"
    )


def remove_tokenizer(workdir: Path) -> None:
    """Removes the work directory's copy of the tokenizer, if there is one."""
    shutil.rmtree(workdir / TOKENIZER_DIRECTORY, ignore_errors=True)


def keep_compiled(workdir: Path) -> None:
    """Keeps compiled programs in the work directory, so that going on starts in seconds."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str((workdir / COMPILED_DIRECTORY).absolute()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def corpus_of(workdir: Path, named: str) -> str:
    """The corpus's path for a run whose setting data.corpus is `named`."""
    return str(workdir / CORPUS_DIRECTORY) if named == INSTALLED_DOCUMENTATION else named


def recorded_corpus(workdir: Path, named: str) -> str:
    """As `corpus_of`, for a run that is not started here; what lies in a bucket is copied to this machine.

    Raises UserError if its path is relative and leads nowhere from here.
    """
    if named == INSTALLED_DOCUMENTATION:
        return corpus_of(workdir, named)
    places = []
    for path in split_corpora(named):
        if not (is_bucket(path) or Path(path).is_absolute() or glob.glob(path)):
            raise UserError(
                f"{workdir} was trained on {path}, as seen from the directory where the run was started; run "
                "this command there, too"
            )
        places.append(str(fetch(path)) if is_bucket(path) else path)
    return ",".join(places)


def _same(one: Path, other: Path) -> bool:
    return os.path.exists(one) and os.path.exists(other) and one.samefile(other)
