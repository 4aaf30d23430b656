"""Where the checkpoints of a run lie: in its directory, or in the bucket that the directory stands for.

Orbax writes a checkpoint as a directory of files. In a file system it renames the directory into place when
all is written; in a bucket, which cannot rename, the object commit_success.txt comes last. So a killed run
leaves no partial checkpoint. Orbax does not notice a flipped bit in the arrays' files, so each checkpoint has
their checksums, too.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from data_pipeline.atomic import atomically, copy_tree, synchronize
from data_pipeline.bucket import BucketDirectory, md5
from data_pipeline.json_text import load_json, parse_json
from data_pipeline.stand_in import CHECKPOINTS_DIRECTORY as DIRECTORY
from data_pipeline.stand_in import DAMAGED_DIRECTORY, bucket_of

ITEM = "default"  # as Orbax's own CheckpointManager calls the only item, so that it reads them too
_CHECKSUMS = "checksums.json"
_UNFINISHED = ocp.path.step.TMP_DIR_SUFFIX  # of the name of a directory that is being written
_COMMITTED = "commit_success.txt"
_SHA256_CHARACTERS = 64  # in hexadecimal


def files_of(workdir: Path) -> "_InDirectory | _InBucket":
    """The checkpoints of a run, by its directory."""
    bucket = bucket_of(workdir)
    return _InDirectory(workdir) if bucket is None else _InBucket(bucket)


class _InDirectory:
    def __init__(self, workdir: Path) -> None:
        self._workdir, self._directory = workdir, workdir / DIRECTORY
        self.place = str(self._directory)
        """Where the checkpoints lie, for messages."""

    def path(self, step: int) -> Path:
        """The directory of a checkpoint, for Orbax."""
        return (self._directory / str(step)).absolute()  # Orbax refuses relative paths

    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, oldest first."""
        return sorted(int(p.name) for p in self._directory.glob("*") if p.name.isdecimal() and p.is_dir())

    def tidy(self) -> None:
        """Removes what a killed run left half-written."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(f"*{_UNFINISHED}*"):
            shutil.rmtree(leftover)

    def remove(self, step: int) -> None:
        """Removes a checkpoint, if it is still there."""
        if self.path(step).exists():  # a user may have deleted it
            # A process that is killed meanwhile must not leave a part of it under its name.
            gone = self._directory / f"deleted{_UNFINISHED}"
            if gone.exists():
                shutil.rmtree(gone)
            self.path(step).rename(gone)
            shutil.rmtree(gone)

    def put_aside(self, step: int) -> None:
        """Moves a damaged checkpoint out of the way."""
        aside = self._workdir / DAMAGED_DIRECTORY
        aside.mkdir(exist_ok=True)
        target = next(name for name in _names_aside(step) if not (aside / name).exists())
        self.path(step).rename(aside / target)

    @contextlib.contextmanager
    def here(self, step: int) -> Iterator[Path]:
        """Inside the block a checkpoint lies in a directory of this machine."""
        yield self.path(step)

    def take(self, step: int, directory: Path) -> None:
        """Copies a checkpoint from a directory of this machine into the run, which has none yet."""
        with atomically(self._directory) as partial:
            copy_tree(directory, partial / str(step))
            self._write_checksums(partial / str(step))
            (partial / str(step) / _COMMITTED).touch()  # for those who read it from a bucket

    def add_checksums(self, step: int) -> None:
        """Adds the checksums of the files of a checkpoint, which are written, to it before it is finished."""
        (directory,) = self._directory.glob(f"{step}{_UNFINISHED}*")
        self._write_checksums(directory)

    def _write_checksums(self, directory: Path) -> None:
        # Orbax does not sync the files to disk: after a power cut they might be empty under their final name.
        names = sorted(name for name in _names(directory) if name.startswith(f"{ITEM}/"))
        sums = _hash_all(directory, dict.fromkeys(names, "sha256"))
        (directory / _CHECKSUMS).write_text(json.dumps(sums, indent=2), encoding="utf-8")
        synchronize(directory)

    def find_fault(self, step: int) -> str | None:
        """What is wrong with the files of a checkpoint, or None if they are as written.

        Raises:
          OSError, Unfinished: they cannot be read, which says nothing about their contents.
        """
        return _find_fault(self.path(step))


class _InBucket:
    """As `_InDirectory`, but the bucket keeps a hash of each object, so that none is read to be checked."""

    def __init__(self, directory: BucketDirectory) -> None:
        self._run, self._directory = directory, directory / DIRECTORY
        self.place = str(self._directory)

    def path(self, step: int) -> epath.Path:
        return epath.Path(f"{self._directory}/{step}")

    def steps(self) -> list[int]:
        names = (name.split("/") for name in self._directory.list())
        return sorted(int(name[0]) for name in names if name[0].isdecimal() and name[1:] == [_COMMITTED])

    def tidy(self) -> None:
        finished = set(map(str, self.steps()))
        names = self._directory.list()
        self._directory.delete([name for name in names if name.split("/")[0] not in finished])

    def remove(self, step: int) -> None:
        directory = self._directory / str(step)
        directory.delete([_COMMITTED])  # first, so that it never looks whole
        directory.delete(list(directory.list()))

    def put_aside(self, step: int) -> None:
        aside = self._run / DAMAGED_DIRECTORY
        taken = {name.split("/")[0] for name in aside.list()}
        target = next(name for name in _names_aside(step) if name not in taken)
        with self.here(step) as directory:
            (aside / target).upload(directory, _names(directory))
        self.remove(step)

    @contextlib.contextmanager
    def here(self, step: int) -> Iterator[Path]:
        source = self._directory / str(step)
        with tempfile.TemporaryDirectory() as directory:
            source.download(Path(directory), source.list())
            yield Path(directory)

    def take(self, step: int, directory: Path) -> None:
        target = self._directory / str(step)
        target.upload(directory, _names(directory) - {_COMMITTED})
        self.add_checksums(step)
        target.write(_COMMITTED, b"")

    def add_checksums(self, step: int) -> None:
        directory = self._directory / str(step)
        sums = {name: found.md5 for name, found in directory.list().items() if name.startswith(f"{ITEM}/")}
        directory.write(_CHECKSUMS, json.dumps(sums, indent=2).encode())

    def find_fault(self, step: int) -> str | None:
        directory = self._directory / str(step)
        content = directory.read(_CHECKSUMS)
        if content is None:
            return f"{_CHECKSUMS} is missing"
        try:
            sums = parse_json(content[0].decode()).items()
        except (ValueError, AttributeError) as error:
            return f"{_CHECKSUMS} cannot be read: {type(error).__name__}"
        found = directory.list()
        composed = any(name in found and not found[name].md5 for name, _ in sums)
        # Or written through a mount.
        if composed or any(_algorithm(digest) != "md5" for _, digest in sums):
            with self.here(step) as copy:
                return _find_fault(copy)
        for name, digest in sums:
            if name not in found:
                return f"{name} is missing"
            if found[name].md5 != digest:
                return f"{name} was altered"
        return None


def _names_aside(step: int) -> Iterator[str]:
    """Names for a damaged checkpoint, of which the first free one is taken: 10, 10.1, 10.2, ..."""
    return itertools.chain([f"{step}"], (f"{step}.{number}" for number in itertools.count(1)))


def _names(directory: Path) -> set[str]:
    """The names of all files below a directory."""
    return {str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()}


def _find_fault(checkpoint: Path) -> str | None:
    """As `_InDirectory.find_fault`, of a directory of this machine."""
    try:
        sums = dict(load_json(checkpoint / _CHECKSUMS).items())
        for name in sums:
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
        found = _hash_all(checkpoint, {name: _algorithm(digest) for name, digest in sums.items()})
    except (FileNotFoundError, ValueError, AttributeError) as error:
        return f"{_CHECKSUMS} cannot be read: {type(error).__name__}"
    altered = [name for name, digest in sums.items() if digest != found[name]]
    return f"{altered[0]} was altered or truncated" if altered else None


def _algorithm(digest: Any) -> str:
    """Of a checksum: those of files are SHA-256 in hexadecimal, those of a bucket's objects MD5 in Base64.

    A bucket may be mounted by one command and not by the next.
    """
    return "sha256" if len(str(digest)) == _SHA256_CHARACTERS else "md5"


def _hash_all(directory: Path, algorithms: Mapping[str, str]) -> dict[str, str]:
    """The checksums of files, by threads: hashing releases the GIL, and a mounted bucket is slow to read."""

    def checksum(name: str) -> str:
        if algorithms[name] == "md5":
            return md5(directory / name)
        with (directory / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(algorithms, pool.map(checksum, algorithms), strict=True))
