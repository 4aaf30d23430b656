"""A prepared corpus, opened for training: every shard mapped into memory and seen as one long array.

Nothing is read until it is asked for, so a corpus of any size opens at once and processes of one
machine share its pages.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.errors import UserError, bad_input
from data_pipeline.names import Split
from data_pipeline.shards import read_shard
from data_pipeline.tokenizer import Tokenizer, load_tokenizer
from data_pipeline.vocabulary_file import TOKENIZER_FOLDER

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """One split. Tokens have global positions, as if the shards were joined in order."""

    directory: Path
    split: Split
    manifest: dict[str, Any]
    tokenizer: Tokenizer
    shard_tokens: tuple[np.ndarray, ...]
    """The ids of each shard: uint16 or uint32, views of the mapped files."""
    shard_starts: np.ndarray
    """int64 [shards + 1]: the global position of each shard's first token, then the number of tokens."""
    sentence_starts: np.ndarray
    """int64 [sentences + 1]: the global position of each sentence's first token, then their number."""
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
        """The ids at global positions [start, stop), a view; both inside one document."""
        shard = int(self.shard_starts.searchsorted(start, side="right")) - 1
        first = int(self.shard_starts[shard])
        return self.shard_tokens[shard][start - first : stop - first]

    def verify(self) -> None:
        """Read every shard and compare checksums. Raises UserError naming the first altered one."""
        shards = _shards(self.manifest, self.split)
        paths = [self.directory / shard["file"] for shard in shards]
        with concurrent.futures.ThreadPoolExecutor() as pool:  # hashing lets go of the interpreter
            for path, shard, digest in zip(paths, shards, pool.map(checksum, paths), strict=True):
                if digest != shard["sha256"]:
                    raise UserError(f"{path} was altered: its checksum is not the one in {MANIFEST_FILE}")


def open_corpus(directory: str | Path, split: Split) -> Corpus:
    """Open what `bert-jax prepare` made; sizes are checked, contents only by `verify`.

    Raises:
      UserError: no corpus there, or one of another format; a shard missing or truncated; a
        tokenizer that is not the one of the shards; no documents in this split.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    tokenizer = load_tokenizer(directory / TOKENIZER_FOLDER)
    if tokenizer.sha256 != manifest["tokenizer"]["sha256"]:
        raise UserError(
            f"the vocabulary in {directory / TOKENIZER_FOLDER} and the shards of {directory} don't "
            f"belong together: the shards were made with another one"
        )
    shards = _shards(manifest, split)
    if not shards:
        raise UserError(f"{directory} has no {split} documents; prepare it with --holdout above 0")
    for shard in shards:
        _check_size(directory / shard["file"], shard["bytes"])
    return _join(directory, split, manifest, tokenizer)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a corpus. Raises UserError if there is none, or of another format."""
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise bad_input(
            error,
            directory / MANIFEST_FILE,
            f"{directory} is not a corpus: it has no readable {MANIFEST_FILE}; "
            f"make one with `bert-jax prepare INPUT --output {directory}`",
        ) from None
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise UserError(f"{directory} has corpus format {version}; this version reads {FORMAT_VERSION}")
    return manifest


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shards(manifest: dict[str, Any], split: Split) -> list[dict[str, Any]]:
    return manifest["splits"][split]["shards"]


def _check_size(path: Path, expected: int) -> None:
    actual = path.stat().st_size if path.is_file() else None
    if actual is None:
        raise UserError(f"{path} is missing; the corpus needs it")
    if actual != expected:
        raise UserError(f"{path} has {actual} bytes instead of {expected}: it was truncated or altered")


def _join(directory: Path, split: Split, manifest: dict[str, Any], tokenizer: Tokenizer) -> Corpus:
    shards = [read_shard(directory / shard["file"]) for shard in _shards(manifest, split)]
    token_starts = _starts([len(shard.tokens) for shard in shards])
    first_sentences = _starts([len(shard.sentence_starts) - 1 for shard in shards])
    return Corpus(
        directory=directory,
        split=split,
        manifest=manifest,
        tokenizer=tokenizer,
        shard_tokens=tuple(shard.tokens for shard in shards),
        shard_starts=token_starts,
        sentence_starts=_concatenate([shard.sentence_starts for shard in shards], token_starts),
        document_starts=_concatenate([shard.document_starts for shard in shards], first_sentences),
    )


def _starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _concatenate(starts: list[np.ndarray], offsets: np.ndarray) -> np.ndarray:
    """Shift each shard's starts by its offset and join them; each shard's end is the next one's first."""
    shifted = [part[:-1] + offset for part, offset in zip(starts, offsets[:-1], strict=True)]
    return np.concatenate([*shifted, offsets[-1:]]).astype(np.int64)
