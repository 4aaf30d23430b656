"""A directory of this machine that stands for one of a bucket.

A run reads and writes files here; what it changed is copied to the bucket before each checkpoint, every half
minute, and at the end. Its checkpoints are in the bucket alone (`bert_jax.training.checkpoint_files`), since
the processes of a run write them together.

Several machines share the directory of a study, each with a stand-in of its own. Each works in parts of the
directory that it has to itself, and copies them to the bucket when it is done.
"""

import contextlib
import fnmatch
import os
import platform
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from data_pipeline.atomic import is_partial, write_bytes, write_json
from data_pipeline.bucket import BucketDirectory, Object, is_same, md5
from data_pipeline.errors import UserError
from data_pipeline.json_text import load_json

CHECKPOINTS_DIRECTORY = "checkpoints"
DAMAGED_DIRECTORY = "damaged-checkpoints"
COMPILED_DIRECTORY = "compilation-cache"
_MARK = ".bucket"
"""In a directory that stands for one of a bucket: the bucket's URL. Checkpoints are in the bucket alone."""
_COPIED = ".copied.json"
"""Beside that mark: name -> hash of each file when it was last copied, from the bucket or there."""
LEASE_FILE = "lease.json"
"""In a directory of a bucket: which process works in it."""
_pushing = threading.Lock()
"""Of two copies at once, an older file could be the one that stays."""
# Of this machine, or of the bucket, alone.
_NOT_COPIED = ("lock", LEASE_FILE, _MARK, _COPIED)


Kind: TypeAlias = Literal["", "@outputs", "@shared"]


def place_for(url: str, kind: Kind = "") -> Path:
    """The directory or file of this machine that stands for a place in a bucket.

    What a command reads, writes or shares has places of its own, so that reading a place does not make it
    anew while another command works in it. No bucket has a name that begins with "@".
    """
    return _root() / kind / BucketDirectory(url).url.removeprefix("gs://")


def with_urls(text: str) -> str:
    """A text with the places in buckets that stand-ins of this machine stand for, in place of their paths."""
    return re.sub(rf"{re.escape(str(_root()))}/(@[^/]+/)?", "gs://", text)


def bucket_of(directory: Path) -> BucketDirectory | None:
    """The directory of a bucket that a directory stands for, or None."""
    mark = directory / _MARK
    return BucketDirectory(mark.read_text(encoding="utf-8").strip()) if mark.exists() else None


def fetch(url: str, kind: Kind = "") -> Path:
    """Copies what lies at a place in a bucket to this machine, unless it is here already.

    The checkpoints of a run are left in the bucket. Several processes may fetch the same.

    Args:
      url: of a directory or of one object.
      kind: of the place on this machine.

    Raises:
      UserError: there is nothing, or the bucket may not be used.
      Unfinished: the bucket does not answer.
    """
    source, target = BucketDirectory(url), place_for(url, kind)
    found = source.list()
    if not found:
        return _fetch_object(source, target)
    if target.is_file():
        target.unlink(missing_ok=True)  # another process may fetch the same
    _copy_here(source, found, target, any(name.startswith(f"{CHECKPOINTS_DIRECTORY}/") for name in found))
    return target


@contextlib.contextmanager
def directory_of_run(url: str) -> Iterator[Path]:
    """Copies the directory of a run, which may be new, to this machine, without its checkpoints.

    The copy is this process's own, since another one may train in the same directory of the bucket, and is
    removed at the end; only compiled programs stay.

    Raises:
      UserError: the bucket may not be used.
      Unfinished: the bucket does not answer.
    """
    source, shared = BucketDirectory(url), place_for(url)
    for leftover in _root().glob(f"@{platform.node()}-*"):
        process = leftover.name.removeprefix(f"@{platform.node()}-")
        # In a shared cache, "@vm-2-123" is of the machine "vm-2", not of "vm".
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(leftover, ignore_errors=True)
    own = _root() / f"@{platform.node()}-{os.getpid()}"
    directory = own / shared.relative_to(_root())
    shutil.rmtree(own, ignore_errors=True)  # of a killed process with this number: in a container all are 1
    try:
        _copy_here(source, source.list(), directory, leaves_checkpoints=True)
        (shared / COMPILED_DIRECTORY).mkdir(parents=True, exist_ok=True)
        (directory / COMPILED_DIRECTORY).symlink_to(shared / COMPILED_DIRECTORY)
        yield directory
    finally:
        shutil.rmtree(own, ignore_errors=True)


def shared_directory(url: str) -> Path:
    """The stand-in of a directory that several machines share, which may be new. Nothing is copied yet."""
    directory = place_for(url, "@shared")
    directory.mkdir(parents=True, exist_ok=True)
    _mark(directory, BucketDirectory(url))
    return directory


def is_empty(directory: Path) -> bool:
    """Whether a directory has no files but those that another process is just writing, and the one that says
    for which directory of a bucket it stands."""
    return all(path.name == _MARK or is_partial(path.name) for path in directory.iterdir())


def pull(directory: Path, choose: Callable[[Collection[str]], Collection[str]]) -> None:
    """Copies files from the bucket that a directory stands for, if it stands for one.

    Files that are not chosen stay as they are. Raises Unfinished if the bucket does not answer.

    Args:
      directory: shared with other machines.
      choose: returns some of the files' names.
    """
    if source := bucket_of(directory):
        found = source.list()
        source.download(directory, {name: found[name] for name in choose(found)})


def pull_files(directory: Path, pattern: str) -> None:
    """As `pull`, of names such as "*/job.json"; a star stands for slashes too."""
    pull(directory, lambda names: fnmatch.filter(names, pattern))


def pull_part(directory: Path, part: str, *, leaves_checkpoints: bool) -> None:
    """As `pull`, but makes a part of the directory just what it is in the bucket.

    Args:
      directory: shared with other machines.
      part: path of a directory in it.
      leaves_checkpoints: whether it is that of a run, whose checkpoints are in the bucket alone.
    """
    if source := bucket_of(directory):
        _copy_here(source / part, (source / part).list(), directory / part, leaves_checkpoints)


def pull_changes(directory: Path) -> None:
    """Copies what changed in the bucket since the directory of a run was copied from it, if it was.

    What changed here stays. Raises Unfinished if the bucket does not answer.
    """
    if source := bucket_of(directory):
        copied = _copied(directory)
        there = {
            name: one for name, one in source.list().items() if _is_copied(name, leaves_checkpoints=True)
        }
        source.download(directory, {name: one for name, one in there.items() if one.md5 != copied.get(name)})
        for name in copied.keys() - there.keys():
            (directory / name).unlink(missing_ok=True)
        write_json(directory / _COPIED, {name: one.md5 for name, one in there.items()})


def push_part(directory: Path, part: str) -> None:
    """Makes a part of the bucket that a directory stands for, if it stands for one, just what it is here.

    Not for that of a run, which `push` copies. Raises Unfinished if the bucket does not answer.
    """
    if target := bucket_of(directory):
        upload(directory / part, target / part)


def push_files(directory: Path, *names: str) -> None:
    """Copies files to the bucket that a directory stands for, if it stands for one; raises as `push`."""
    if target := bucket_of(directory):
        target.upload(directory, names)


def remove_file(directory: Path, name: str) -> None:
    """Removes a file, here and in the bucket that the directory stands for; raises as `push`."""
    (directory / name).unlink(missing_ok=True)
    if target := bucket_of(directory):
        target.delete([name])


def push(directory: Path) -> None:
    """Copies what changed in the directory of a run to the bucket that it stands for, if it stands for one.

    What other processes write there meanwhile, such as evaluations of the run, stays as it is. Raises
    Unfinished if the bucket does not answer.
    """
    target = bucket_of(directory)
    if target is None:
        return
    with _pushing:
        copied = _copied(directory)
        # Hashed before they are copied: one that changes in between is copied again the next time.
        here = _hashes(directory)
        there = target.list()
        changed = [name for name in here if here[name] != copied.get(name) or name not in there]
        target.upload(directory, changed)
        removed = [name for name in copied if name not in here and name in there]
        target.delete([name for name in removed if there[name].md5 in (copied[name], "")])
        if here != copied:
            write_json(directory / _COPIED, here)


def upload(directory: Path, target: BucketDirectory) -> None:
    """Makes a place in a bucket hold the files of a directory of this machine, or the one file that it is.

    Raises Unfinished if the bucket does not answer.
    """
    if not directory.is_dir():
        if directory.exists():
            BucketDirectory(target.url.rpartition("/")[0]).upload(directory.parent, [directory.name])
        return
    there = target.list()
    here = _files(directory, leaves_checkpoints=False)
    changed = [name for name, path in here.items() if name not in there or not is_same(path, there[name])]
    target.upload(directory, changed)
    target.delete([name for name in there if name not in here and _is_copied(name, leaves_checkpoints=False)])


def _files(directory: Path, leaves_checkpoints: bool) -> dict[str, Path]:
    """The files of a directory that are copied, by name."""
    names = {path.relative_to(directory).as_posix(): path for path in sorted(directory.rglob("*"))}
    return {
        name: path for name, path in names.items() if path.is_file() and _is_copied(name, leaves_checkpoints)
    }


def _copied(directory: Path) -> dict[str, str]:
    """Name -> hash of each file as it was when it was last copied, in either direction."""
    return load_json(directory / _COPIED) if (directory / _COPIED).exists() else {}


def _hashes(directory: Path) -> dict[str, str]:
    """Name -> hash of each file of a run that is copied."""
    return {name: md5(path) for name, path in _files(directory, leaves_checkpoints=True).items()}


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def _root() -> Path:
    cache = os.environ.get("BERT_JAX_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "bert-jax"


def _copy_here(
    source: BucketDirectory, found: dict[str, Object], target: Path, leaves_checkpoints: bool
) -> None:
    """Makes a directory of this machine hold the objects `found` of a bucket, and no other files."""
    target.mkdir(parents=True, exist_ok=True)
    if leaves_checkpoints:
        _mark(target, source)
    else:
        (target / _MARK).unlink(missing_ok=True)
        (target / _COPIED).unlink(missing_ok=True)
    wanted = {name: one for name, one in found.items() if _is_copied(name, leaves_checkpoints)}
    for name, path in _files(target, leaves_checkpoints).items():
        if name not in wanted:
            path.unlink(missing_ok=True)  # another start may have removed it from the bucket
    source.download(target, wanted)
    if leaves_checkpoints:
        write_json(target / _COPIED, _hashes(target))


def _mark(directory: Path, bucket: BucketDirectory) -> None:
    """Notes which directory of a bucket a directory stands for, all at once, as other processes may read."""
    write_bytes(directory / _MARK, f"{bucket.url}\n".encode())


def _fetch_object(source: BucketDirectory, target: Path) -> Path:
    found = source.own_object()
    if found is None:
        raise UserError(f"there is nothing at {source.url}; name a directory or an object that exists")
    parent, _, name = source.url.rpartition("/")
    BucketDirectory(parent).download(target.parent, {name: found})
    return target


def _is_copied(name: str, leaves_checkpoints: bool) -> bool:
    of_checkpoint = leaves_checkpoints and name.startswith(
        (f"{CHECKPOINTS_DIRECTORY}/", f"{DAMAGED_DIRECTORY}/")
    )
    is_of_one_side = name in _NOT_COPIED or name.startswith(f"{COMPILED_DIRECTORY}/")
    return not (of_checkpoint or is_partial(name) or is_of_one_side)
