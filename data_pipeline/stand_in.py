"""A directory of this machine that stands for one of a bucket.

A run reads and writes files here; what it changed is copied to the bucket before each checkpoint, every half
minute, and at the end. Its checkpoints are in the bucket alone (`bert_jax.training.checkpoint_files`), since
the processes of a run write them together. The next start, on whatever machine, copies the files from the
bucket, so that this directory may be lost at any time.
"""

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from data_pipeline.bucket import BucketDirectory, Object, is_same
from data_pipeline.errors import Unfinished, UserError

CHECKPOINTS_DIRECTORY = "checkpoints"
_MARK = ".bucket"
"""In a directory that stands for one of a bucket: the bucket's URL. Checkpoints are in the bucket alone."""
_SECONDS_BETWEEN_COPIES = 30.0
# Of this machine, or of the bucket, alone.
_NOT_COPIED = ("lock", "lease.json", _MARK, "compilation-cache/")


def place_for(url: str, *, of_process: bool = False) -> Path:
    """What stands for a place in a bucket, on this machine or in this process alone."""
    cache = os.environ.get("BERT_JAX_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    place = Path(cache).expanduser() / "bert-jax" / BucketDirectory(url).url.removeprefix("gs://")
    return place.with_name(f"{place.name}@{platform.node()}-{os.getpid()}") if of_process else place


def bucket_of(directory: Path) -> BucketDirectory | None:
    """The directory of a bucket that a directory stands for, or None."""
    mark = directory / _MARK
    return BucketDirectory(mark.read_text(encoding="utf-8").strip()) if mark.exists() else None


def fetch(url: str, *, as_run: bool = False, of_process: bool = False) -> Path:
    """Copies what lies at a place in a bucket to this machine, unless it is here already.

    Args:
      url: of a directory or of one object.
      as_run: whether the directory may be new, and its checkpoints stay in the bucket, as those of every
        directory that holds some do.
      of_process: whether to copy it for this process alone: the home directories of several machines may be
        one.

    Raises:
      UserError: there is nothing, or the bucket may not be used.
      Unfinished: the bucket does not answer.
    """
    source, target = BucketDirectory(url), place_for(url, of_process=of_process)
    found = source.list()
    if not found and not as_run:
        return _fetch_object(source, target)
    if target.is_file():
        target.unlink()
    target.mkdir(parents=True, exist_ok=True)
    has_checkpoints = any(name.startswith(f"{CHECKPOINTS_DIRECTORY}/") for name in found)
    mark = target / _MARK
    if as_run or has_checkpoints:
        mark.write_text(f"{source.url}\n", encoding="utf-8")
    else:
        mark.unlink(missing_ok=True)
    wanted = {name: one for name, one in found.items() if _is_copied(name, mark.exists())}
    _remove_others(target, wanted, mark.exists())
    source.download(target, wanted)
    return target


def push(directory: Path) -> None:
    """Copies what changed in a directory to the bucket that it stands for, if it stands for one.

    Raises Unfinished if the bucket does not answer.
    """
    if target := bucket_of(directory):
        upload(directory, target, leaves_checkpoints=True)


def upload(directory: Path, target: BucketDirectory, *, leaves_checkpoints: bool = False) -> None:
    """Makes a place in a bucket hold the files of a directory of this machine, or the one file that it is.

    Raises Unfinished if the bucket does not answer.
    """
    if not directory.is_dir():
        if directory.exists():
            BucketDirectory(target.url.rpartition("/")[0]).upload(directory.parent, [directory.name])
        return
    there = target.list()
    here = {
        name: path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and _is_copied(name := path.relative_to(directory).as_posix(), leaves_checkpoints)
    }
    changed = [name for name, path in here.items() if name not in there or not is_same(path, there[name])]
    target.upload(directory, changed)
    target.delete([name for name in there if name not in here and _is_copied(name, leaves_checkpoints)])


@contextlib.contextmanager
def copied_now_and_then(copy: Callable[[], None]) -> Iterator[None]:
    """Calls `copy` every half minute inside the block; a failure is left to the next time."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_SECONDS_BETWEEN_COPIES):
            with contextlib.suppress(OSError, UserError, Unfinished):
                copy()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _fetch_object(source: BucketDirectory, target: Path) -> Path:
    parent, _, name = source.url.rpartition("/")
    found = BucketDirectory(parent).find(name) if parent != "gs:/" else None
    if found is None:
        raise UserError(f"there is nothing at {source.url}; name a directory or an object that exists")
    BucketDirectory(parent).download(target.parent, {name: found})
    return target


def _is_copied(name: str, leaves_checkpoints: bool) -> bool:
    of_checkpoint = leaves_checkpoints and name.startswith(f"{CHECKPOINTS_DIRECTORY}/")
    is_partial = name.rpartition("/")[2].startswith(".") and name.endswith(".partial")
    return not (of_checkpoint or is_partial or name.startswith(_NOT_COPIED))


def _remove_others(directory: Path, wanted: dict[str, Object], leaves_checkpoints: bool) -> None:
    """Removes files that the bucket does not have: another start may have removed them."""
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and name not in wanted and _is_copied(name, leaves_checkpoints):
            path.unlink()
