"""Documents that repeat earlier ones, found in one pass over the inputs before anything is made of them.

Which these are depends on the text and its order alone, not on the number of processes. The result is kept in
the directory in which the corpus grows, so that a restart does not repeat the pass.
"""

import dataclasses
import hashlib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import numpy as np
from numpy.typing import NDArray

from data_pipeline.atomic import atomically
from data_pipeline.names import DuplicateHandling
from data_pipeline.preparing.inputs import Inputs
from data_pipeline.preparing.near_duplicates import SIGNATURE_SIZE, find_near_duplicates, make_signatures
from data_pipeline.preparing.progress import Progress, count_bytes
from data_pipeline.preparing.shard_texts import as_text
from data_pipeline.preparing.worker_pool import in_order, worker_pool

# Hidden, so that `publish` removes them.
_FOUND_FILE = ".duplicates.npy"
_SIGNATURES_FILE = ".signatures"

_FOUND = np.dtype([("input", np.int64), ("document", np.int64), ("is_near", np.bool_)])
_CHUNK_CHARACTERS = 1 << 20
_CHUNK_DOCUMENTS = 1024

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The documents that a corpus leaves out because they repeat earlier ones."""

    found: np.ndarray
    """`_FOUND` [n]: the number of the input and that of the document in it, in reading order."""

    def counts(self) -> dict[str, int]:
        """How many repeat the text of an earlier one, and how many more are similar to one."""
        near = int(self.found["is_near"].sum())
        return {"exact": len(self.found) - near, "near": near}

    def leave_out(self, inputs: Inputs) -> Inputs:
        """The inputs without these documents."""
        if not len(self.found):
            return inputs
        borders = np.searchsorted(self.found["input"], np.arange(1, len(inputs.items)))
        return dataclasses.replace(inputs, left_out=tuple(np.split(self.found["document"], borders)))


def find_duplicates(
    inputs: Inputs,
    handling: DuplicateHandling,
    similarity: float,
    directory: Path,
    workers: int | None,
    on_progress: Progress,
) -> Duplicates:
    """Returns the duplicates that are to be left out, those that an earlier call found in `directory` if any.

    The first document of a text stays. Texts are equal if they are so in compatibility form (NFKC), without
    case, and with any white space as one blank. With `near` a document is left out as well whose estimated
    similarity to an earlier one that stays is at least `similarity` (`near_duplicates`).

    In memory it holds 34 bytes for each document, and 2.5 kB for each that is compared. Signatures take
    512 bytes each on disk meanwhile.

    Args:
      directory: where the result is kept.
      workers: processes of this machine; None: one per core.

    Raises:
      UserError: an input cannot be read.
    """
    if handling == "keep":
        return Duplicates(np.empty(0, _FOUND))
    path = directory / _FOUND_FILE
    if not path.exists():
        signatures = directory / _SIGNATURES_FILE
        try:
            hashes, firsts = _describe_all(
                inputs, handling == "near", signatures, workers or joblib.cpu_count(), on_progress
            )
            exact, near = _repeated(hashes), np.empty(0, np.int64)
            if handling == "near":
                on_progress("comparing documents", 0, None)
                mapped = np.memmap(signatures, np.uint32, "r", shape=(len(hashes), SIGNATURE_SIZE))
                near = np.setdiff1d(find_near_duplicates(mapped, similarity), exact)
        finally:
            signatures.unlink(missing_ok=True)
        _save(path, exact, near, firsts)
    return Duplicates(np.load(path))


def _describe_all(
    inputs: Inputs, is_signed: bool, signatures: Path, workers: int, on_progress: Progress
) -> tuple[NDArray[np.uint64], Ints]:
    """Hashes every document; writes their signatures to a file, which stays empty unless `is_signed`.

    Returns:
      hashes [N], and the number of each input's first document.
    """
    counts = np.zeros(len(inputs.items), np.int64)
    chunks = _chunks(inputs, counts, count_bytes(inputs, "finding duplicates", on_progress))
    hashes = []
    with worker_pool(workers) as pool, signatures.open("wb") as file:
        futures = (pool.submit(_describe, chunk, is_signed) for chunk in chunks)
        for hashed, signed in in_order(futures, ahead=workers):
            hashes.append(hashed)
            file.write(signed.tobytes())
    return np.concatenate(hashes), np.cumsum(counts) - counts


def _chunks(inputs: Inputs, counts: Ints, on_bytes: Callable[[int], None]) -> Iterator[list[str]]:
    """Yields the texts in order, some at a time; counts those of each input in `counts`."""
    chunk, size = list[str](), 0
    for number in range(len(inputs.items)):
        for document in inputs.part(number, number + 1).documents(on_bytes):
            counts[number] += 1
            chunk.append(as_text(document))
            size += len(chunk[-1])
            if size >= _CHUNK_CHARACTERS or len(chunk) == _CHUNK_DOCUMENTS:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _describe(texts: list[str], is_signed: bool) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """A hash of each text, and its signature if `is_signed`."""
    same = [" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts]
    hashes = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in same)
    return np.frombuffer(hashes, "<u8"), make_signatures(same if is_signed else [])


def _repeated(hashes: NDArray[np.uint64]) -> Ints:
    """The places of the values that stand earlier too, ascending."""
    _, first_places = np.unique(hashes, return_index=True)
    return np.delete(np.arange(len(hashes)), first_places)


def _save(path: Path, exact: Ints, near: Ints, firsts: Ints) -> None:
    """Writes what was found: numbers of documents, counted over all inputs."""
    numbers = np.concatenate([exact, near])
    found = np.empty(len(numbers), _FOUND)
    found["input"] = np.searchsorted(firsts, numbers, side="right") - 1
    found["document"] = numbers - firsts[found["input"]]
    found["is_near"] = np.arange(len(numbers)) >= len(exact)
    with atomically(path) as partial, partial.open("wb") as file:
        np.save(file, found[numbers.argsort()])
