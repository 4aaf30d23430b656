"""Directories of a bucket of Google Cloud Storage, such as gs://bucket/runs/mine, and copies of them here.

An object appears whole or not at all. It has a generation, a number that changes with its content, so that it
can be made only where there is none, and replaced only where nobody else has replaced it meanwhile.

Needs the extra [gcs].
"""

import base64
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from data_pipeline.atomic import atomically
from data_pipeline.errors import Unfinished, UserError

# `Path` merges the two slashes of a URL into one.
_URL = re.compile(r"gs:/{1,2}([^/]+)/?(.*)")

_AT_ONCE = 10
"""Objects that are copied at the same time: a small one takes as long as the bucket does to answer."""


def is_bucket(path: object) -> bool:
    """Whether a path names a place in a bucket."""
    return _URL.fullmatch(str(path)) is not None


@dataclasses.dataclass(frozen=True)
class Object:
    """What a bucket says of an object."""

    size: int
    """Bytes."""
    md5: str
    """Hash of its content; empty for objects that were composed of others."""
    generation: int


class BucketDirectory:
    """The objects whose names begin with a prefix. Names are relative to it, with slashes.

    All methods raise:
      UserError: the bucket does not exist, or may not be used.
      Unfinished: it cannot be reached, or did not answer for two minutes.
    """

    def __init__(self, url: str | Path) -> None:
        """Opens gs://BUCKET or gs://BUCKET/PREFIX; the bucket is not asked yet."""
        found = _URL.fullmatch(str(url))
        if found is None:
            raise ValueError(f"{url} is not the URL of a bucket")
        prefix = found[2].strip("/")
        self.url = f"gs://{found[1]}" + (f"/{prefix}" if prefix else "")
        self._name, self._prefix = found[1], f"{prefix}/" if prefix else ""

    @property
    def is_whole_bucket(self) -> bool:
        """Whether it has all objects of its bucket."""
        return not self._prefix

    def __truediv__(self, name: str) -> "BucketDirectory":
        return BucketDirectory(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    def list(self) -> dict[str, Object]:
        """All objects by name, in the order of their names; empty if there is none."""
        with self._errors():
            blobs = self._google().client().list_blobs(self._name, prefix=self._prefix)
            found = {
                blob.name.removeprefix(self._prefix): Object(blob.size, blob.md5_hash or "", blob.generation)
                for blob in blobs
                if not blob.name.endswith("/")  # what stands for an empty directory
            }
        return dict(sorted(found.items()))

    def exists(self) -> bool:
        """Whether there is an object in it, or one of its name."""
        return bool(self.list()) or self.own_object() is not None

    def own_object(self) -> Object | None:
        """The object of the directory's own name; None if there is none."""
        parent, _, name = self.url.rpartition("/")
        return None if parent == "gs:/" else BucketDirectory(parent).find(name)

    def find(self, name: str) -> Object | None:
        """One object, or None if it does not exist."""
        with self._errors():
            blob = self._google().client().bucket(self._name).get_blob(self._prefix + name)
            if blob is None:
                self._check_bucket()
                return None
        return Object(blob.size, blob.md5_hash or "", blob.generation)

    def read(self, name: str) -> tuple[bytes, int] | None:
        """The content of an object and its generation; None if it does not exist."""
        with self._errors():
            blob = self._blob(name)
            try:
                return blob.download_as_bytes(), int(blob.generation)
            except self._google().NotFound:
                self._check_bucket()
                return None

    def write(self, name: str, content: bytes, generation: int | None = None) -> int | None:
        """Writes an object.

        Args:
          name: of the object.
          content: the new one.
          generation: that which the object must have, 0 for none yet; None: whatever it has.

        Returns:
          The new generation, or None if the object has another one than it must.
        """
        with self._errors():
            blob = self._blob(name)
            try:
                blob.upload_from_string(
                    content, if_generation_match=generation, retry=self._google().DEFAULT_RETRY
                )
            except self._google().PreconditionFailed:
                # Also after a request that succeeded, and whose answer was lost.
                mine = None if generation is None else self.read(name)
                return mine[1] if mine and mine[0] == content else None
        return int(blob.generation)

    def delete(self, names: Collection[str]) -> None:
        """Deletes objects; those that do not exist are no error."""

        def remove(name: str) -> None:
            with contextlib.suppress(self._google().NotFound):
                self._blob(name).delete(retry=self._google().DEFAULT_RETRY)

        with self._errors():
            _at_once(remove, names)

    def download(self, directory: Path, names: Mapping[str, Object]) -> None:
        """Copies objects to files below a directory, as `list` named them, unless the same file is there.

        One that was replaced since is copied as it is now; one that was deleted since raises Unfinished.
        """
        with self._errors():
            _at_once(lambda name: self._fetch(directory, name, names[name]), names)

    def upload(self, directory: Path, names: Collection[str]) -> None:
        """Copies files below a directory to objects."""

        def send(name: str) -> None:
            self._blob(name).upload_from_filename(directory / name, retry=self._google().DEFAULT_RETRY)

        with self._errors():
            _at_once(send, names)

    def _fetch(self, directory: Path, name: str, wanted: Object) -> None:
        path = directory / name
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise UserError(f"{self.url}/{name} leads out of its directory; rename the object")
        if is_same(path, wanted):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomically(path) as partial:
                self._blob(name).download_to_filename(
                    partial, checksum="md5", if_generation_match=wanted.generation
                )
        except (self._google().PreconditionFailed, self._google().NotFound):
            now = self.find(name)
            if now is None:
                raise Unfinished(
                    f"{self.url}/{name} was deleted while it was copied; run the same command again"
                ) from None
            self._fetch(directory, name, now)

    def _blob(self, name: str) -> Any:
        return self._google().client().bucket(self._name).blob(self._prefix + name)

    def _google(self) -> Any:
        try:
            from data_pipeline import bucket_client
        except ImportError:
            raise UserError(
                f"{self.url} needs google-cloud-storage: pip install -c constraints.txt -e '.[gcs]'"
            ) from None
        return bucket_client

    def _check_bucket(self) -> None:
        """Raises NotFound if the bucket does not exist."""
        # Who may use its objects may not always ask for the bucket itself.
        next(iter(self._google().client().list_blobs(self._name, max_results=1)), None)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises what the client raises as one of our errors."""
        google = self._google()
        try:
            yield
        except google.REFUSED as error:
            raise UserError(
                f"{self.url} may not be used ({_gist(error)}); `gcloud auth application-default login` gives "
                f"your permissions, and a machine needs a service account with the role Storage Object User"
            ) from None
        except google.NotFound as error:
            raise UserError(f"{self.url}: not found ({_gist(error)}); name a bucket that exists") from None
        except (*google.UNREACHABLE, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk; those of the connection have no number
            raise Unfinished(
                f"{self.url} does not answer ({_gist(error)}); run the same command again"
            ) from error


def is_same(path: Path, wanted: Object) -> bool:
    """Whether a file has the content of an object."""
    if not path.is_file() or path.stat().st_size != wanted.size or not wanted.md5:
        return False
    return md5(path) == wanted.md5


def md5(path: Path) -> str:
    """The hash of a file as buckets write it."""
    with path.open("rb") as file:
        return base64.b64encode(hashlib.file_digest(file, "md5").digest()).decode()


def _at_once(do: Any, names: Collection[str]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(do, names))  # raises what one of them raises


def _gist(error: Exception) -> str:
    text = getattr(error, "message", "") or str(error)
    return " ".join(text.split())[:200]
