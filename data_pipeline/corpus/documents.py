"""A prepared corpus, opened for training: its shards are mapped into memory and read as one long array.

Tokens are read from disk only when they are used, and processes of one machine share the pages. Only the
starts of sentences and documents are read and kept in memory, 8 bytes each.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from data_pipeline.corpus.shards import Shard, read_shard
from data_pipeline.corpus.tokenizer import Tokenizer, load_tokenizer
from data_pipeline.corpus.vocabulary_file import TOKENIZER_DIRECTORY
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json
from data_pipeline.names import Split

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"

_SPLIT = {"documents": int, "shards": [{"file": str, "bytes": int, "sha256": str}]}
_READ = {"tokenizer": {"sha256": str, "vocab_size": int}, "splits": {"train": _SPLIT, "heldout": _SPLIT}}
"""What is read of a manifest, with its types; the list stands for any number of shards."""

# Most shards mapped at once, over all splits and corpora. Linux allows a process 65,530 maps
# (vm.max_map_count), and libraries need some of them.
MOST_MAPS = 56_000


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """One split of a corpus. Positions of tokens are global, as if the shards were joined in order."""

    directory: Path
    split: Split
    manifest: dict[str, Any]
    tokenizer: Tokenizer
    map_shard: Callable[[int], Shard]
    """number -> shard, whose arrays are views of the mapped file: ids are uint16 or uint32.

    Only those read last stay mapped, and any for as long as its arrays are referenced, so threads may read
    concurrently. Raises UserError if the file is missing, truncated or no shard.
    """
    shard_starts: np.ndarray
    """int64 [shards + 1]: the global position of each shard's first token, then the number of tokens."""
    sentence_starts: np.ndarray
    """int64 [sentences + 1]: the global position of each sentence's first token, then `num_tokens`."""
    document_starts: np.ndarray
    """int64 [documents + 1]: the index of each document's first sentence, then the number of sentences."""

    @property
    def num_tokens(self) -> int:
        return int(self.shard_starts[-1])

    @property
    def num_sentences(self) -> int:
        return len(self.sentence_starts) - 1

    @property
    def num_documents(self) -> int:
        return len(self.document_starts) - 1

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns a view of the ids at global positions [start, stop), which lie in one document."""
        shard = int(self.shard_starts.searchsorted(start, side="right")) - 1
        first = int(self.shard_starts[shard])
        return self.map_shard(shard).tokens[start - first : stop - first]

    def verify(self) -> None:
        """Compares every shard with its checksum. Raises UserError naming the first altered one."""
        shards = _shards(self.manifest, self.split)
        paths = [self.directory / shard["file"] for shard in shards]
        with concurrent.futures.ThreadPoolExecutor() as pool:  # hashing releases the GIL
            for path, shard, digest in zip(paths, shards, pool.map(checksum, paths), strict=True):
                if digest != shard["sha256"]:
                    raise UserError(f"{path} was altered: its checksum is not the one in {MANIFEST_FILE}")


def open_corpus(directory: str | Path, split: Split, num_corpora: int = 1) -> Corpus:
    """Opens a corpus made by `bert-jax prepare`; checks the shards' sizes, and leaves contents to `verify`.

    Args:
      num_corpora: how many corpora the process reads at once; they share its memory maps.

    Raises:
      UserError: no corpus there, or one of another format; a shard missing or truncated; a
        tokenizer that is not the one of the shards; no documents in this split.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    tokenizer = load_tokenizer(directory / TOKENIZER_DIRECTORY)
    if tokenizer.sha256 != manifest["tokenizer"]["sha256"]:
        raise UserError(
            f"the vocabulary in {directory / TOKENIZER_DIRECTORY} and the shards of {directory} don't "
            f"belong together: the shards were made with another one"
        )
    shards = _shards(manifest, split)
    if not shards:
        raise UserError(f"{directory} has no {split} documents; prepare it with --holdout above 0")
    return _join(directory, split, manifest, tokenizer, MOST_MAPS // num_corpora)


def has_manifest(directory: Path) -> bool:
    """Whether a directory holds a corpus, of this format version or another.

    A manifest.json alone is no proof, since other programs write files of that name too.
    """
    try:
        manifest = load_json(directory / MANIFEST_FILE)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return isinstance(manifest, dict) and "format_version" in manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a corpus. Raises UserError if there is none, or it is damaged or of another format."""
    try:
        manifest = load_json(directory / MANIFEST_FILE)
        version = manifest["format_version"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise bad_input(
            error,
            directory / MANIFEST_FILE,
            f"{directory} is not a corpus: it has no readable {MANIFEST_FILE}; "
            f"make one with `bert-jax prepare INPUT --output {directory}`",
        ) from None
    if version != FORMAT_VERSION:
        raise UserError(f"{directory} has corpus format {version}; this version reads {FORMAT_VERSION}")
    if fault := next(_faults(manifest, _READ), None):
        raise UserError(
            f"{directory / MANIFEST_FILE} was altered: {fault} is missing or of another type; "
            f"make the corpus again with `bert-jax prepare INPUT --output {directory}`"
        )
    return manifest


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _faults(value: Any, expected: Any, place: str = "") -> Iterator[str]:
    """Yields the place of each value that is not as `expected`, such as `splits.train.shards.0.bytes`."""
    if isinstance(expected, dict) and isinstance(value, dict):
        for name, inner in expected.items():
            yield from _faults(value.get(name), inner, f"{place}.{name}" if place else name)
    elif isinstance(expected, list) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults(item, expected[0], f"{place}.{number}")
    elif not isinstance(value, expected if isinstance(expected, type) else type(expected)):
        yield place


def _shards(manifest: dict[str, Any], split: Split) -> list[dict[str, Any]]:
    return manifest["splits"][split]["shards"]


def _join(
    directory: Path, split: Split, manifest: dict[str, Any], tokenizer: Tokenizer, most_maps: int
) -> Corpus:
    """Joins the shards of a split; those of all splits together take at most `most_maps` maps."""
    rows = _shards(manifest, split)
    shards_in_all = sum(len(_shards(manifest, split)) for split in get_args(Split))
    most = max(1, most_maps * len(rows) // max(shards_in_all, most_maps))
    map_shard = functools.lru_cache(most)(functools.partial(_map_shard, directory, rows))
    first_tokens, first_sentences = [0], [0]
    sentence_starts, document_starts = list[np.ndarray](), list[np.ndarray]()
    for number in range(len(rows)):
        shard = map_shard(number)
        sentence_starts.append(shard.sentence_starts[:-1] + np.int64(first_tokens[-1]))
        document_starts.append(shard.document_starts[:-1] + np.int64(first_sentences[-1]))
        first_tokens.append(first_tokens[-1] + len(shard.tokens))
        first_sentences.append(first_sentences[-1] + len(shard.sentence_starts) - 1)
    return Corpus(
        directory=directory,
        split=split,
        manifest=manifest,
        tokenizer=tokenizer,
        map_shard=map_shard,
        shard_starts=np.array(first_tokens, np.int64),
        sentence_starts=np.concatenate([*sentence_starts, first_tokens[-1:]], dtype=np.int64),
        document_starts=np.concatenate([*document_starts, first_sentences[-1:]], dtype=np.int64),
    )


def _map_shard(directory: Path, rows: Sequence[dict[str, Any]], number: int) -> Shard:
    path, expected = directory / rows[number]["file"], rows[number]["bytes"]
    if not path.is_file():
        raise UserError(f"{path} is missing; the corpus needs it")
    if (actual := path.stat().st_size) != expected:
        raise UserError(f"{path} has {actual} bytes instead of {expected}: it was truncated or altered")
    return read_shard(path)
