"""Near duplicates among documents: MinHash signatures, and the documents that are similar to earlier ones.

Signatures estimate the Jaccard similarity of sets of word 5-grams (Broder 1997, "On the resemblance and
containment of documents"). Two documents are compared if a band of their signatures is equal, as it nearly
always is where they are similar (locality-sensitive hashing; Leskovec et al., "Mining of Massive Datasets",
chapter 3).
"""

import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.preparing.hashing import mix

SIGNATURE_SIZE = 128
"""Hashes in a signature; the standard error of an estimated similarity s is sqrt(s (1 - s) / 128)."""

LOWEST_SIMILARITY = 0.5
"""Below it nearly all documents would have to be compared with each other."""

_SHINGLE_WORDS = 5
_COMPARED_AT_ONCE = 4096
_RECALL = 0.99  # probability that two documents at the threshold are compared
# Thai and Lao, Burmese, Khmer, Japanese, Chinese: without blanks between words, so each letter is a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


def make_signatures(texts: Sequence[str]) -> NDArray[np.uint32]:
    """The MinHash signatures of texts: uint32 [texts, SIGNATURE_SIZE], the same on every machine."""
    from datasketch import MinHash  # takes a second to import

    hashed = MinHash.generator(
        map(_shingles, texts), num_perm=SIGNATURE_SIZE, seed=1, hashfunc=zlib.crc32, scheme="affine32"
    )
    return np.array([minhash.hashvalues for minhash in hashed], np.uint32).reshape(-1, SIGNATURE_SIZE)


def find_near_duplicates(signatures: NDArray[np.uint32], similarity: float) -> NDArray[np.int64]:
    """Finds the documents that are similar to an earlier one that is not itself a near duplicate.

    Args:
      signatures: [N, SIGNATURE_SIZE], in the order of the documents; may be mapped from a file.
      similarity: estimated Jaccard similarity, from `LOWEST_SIMILARITY` to 1, at which two are similar.

    Returns:
      The numbers of these documents, ascending.
    """
    found = []
    kept: dict[int, list[int]] = {}  # of each bucket
    for document, buckets in _shared_buckets(signatures, similarity):
        rivals = sorted({rival for bucket in buckets for rival in kept.get(bucket, ())})
        # In blocks, as a document of a template may have thousands of rivals: memory stays bounded.
        blocks = (rivals[i : i + _COMPARED_AT_ONCE] for i in range(0, len(rivals), _COMPARED_AT_ONCE))
        signature = signatures[document]
        if any((signatures[block] == signature).mean(axis=1).max() >= similarity for block in blocks):
            found.append(document)
            continue
        for bucket in buckets:
            kept.setdefault(bucket, []).append(document)
    return np.array(found, np.int64)


def rows_per_band(similarity: float) -> int:
    """The most hashes in a band with which two similar documents have an equal band with 99% probability."""

    def recall(rows: int) -> float:
        return 1 - (1 - similarity**rows) ** (SIGNATURE_SIZE // rows)

    return max(rows for rows in range(1, SIGNATURE_SIZE + 1) if recall(rows) >= _RECALL)


def _shingles(text: str) -> set[bytes]:
    """The runs of five words of a text; all its words if it has fewer, the text itself if it has none."""
    words = _WORD.findall(text) or [text]
    starts = range(max(1, len(words) - _SHINGLE_WORDS + 1))
    return {" ".join(words[start : start + _SHINGLE_WORDS]).encode() for start in starts}


def _shared_buckets(signatures: NDArray[np.uint32], similarity: float) -> Iterator[tuple[int, list[int]]]:
    """Yields, in order, each document with an equal band in another one, and the numbers of these buckets."""
    rows = rows_per_band(similarity)
    documents, buckets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    first = 0
    for start in range(0, SIGNATURE_SIZE - rows + 1, rows):
        members, numbers = _shared(_band_keys(signatures, start, start + rows))
        documents.append(members)
        buckets.append(first + numbers)
        first += len(signatures)
    order = np.concatenate(documents).argsort(kind="stable")
    found, firsts = np.unique(np.concatenate(documents)[order], return_index=True)
    split = np.split(np.concatenate(buckets)[order], firsts)[1:]
    yield from zip(found.tolist(), (numbers.tolist() for numbers in split), strict=True)


def _band_keys(signatures: NDArray[np.uint32], start: int, stop: int) -> NDArray[np.uint64]:
    """A hash of the columns [start, stop) of each signature."""
    keys = np.zeros(len(signatures), np.uint64)
    for column in range(start, stop):
        keys = mix(keys + signatures[:, column])
    return keys


def _shared(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The documents whose key another one has, and a number for each that those of one key share."""
    _, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
    members = np.flatnonzero(counts[numbers] > 1)
    return members, numbers[members]
