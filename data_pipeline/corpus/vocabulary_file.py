"""The stored form of a vocabulary: one file and its settings, in the `tokenizer` directory of a corpus or a
run.

Imports nothing beyond the standard library, so that all code that trains, exports or serves a model can
read it by the same rules.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, Literal

from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json

Casing = Literal["cased", "uncased"]
TokenizerKind = Literal["wordpiece", "sentencepiece", "byte_bpe"]

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

TOKENIZER_DIRECTORY = "tokenizer"
"""Name of the vocabulary's directory, both in a corpus and in a run."""

FILES: dict[TokenizerKind, str] = {
    "wordpiece": "vocab.txt",
    "sentencepiece": "spiece.model",
    "byte_bpe": "tokenizer.json",
}
"""File names, as in Hugging Face and google-research/bert."""

# In characters. WordPiece makes a longer word one [UNK]. This is Hugging Face's limit, so that exports
# tokenise alike; google-research/bert allows 200 (tokenization.py:304).
LONGEST_WORD = 100

# What an export rebuilds of a SentencePiece model; any other value gives other ids there.
_REBUILT = {
    "trainer_spec": {"treat_whitespace_as_suffix": False},
    "normalizer_spec": {"add_dummy_prefix": True, "remove_extra_whitespaces": True},
}

_SETTINGS_FILE = "settings.json"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Everything that decides which ids a text gets."""

    kind: TokenizerKind
    casing: Casing
    content: bytes = dataclasses.field(repr=False)
    """Content of `vocab.txt`, one piece per line, of `spiece.model`, or of `tokenizer.json`."""

    @property
    def file_name(self) -> str:
        """Name of the file in a model's directory."""
        return FILES[self.kind]

    def pieces(self, place: object = "the vocabulary") -> list[str]:
        """The lines of a `vocab.txt`, by id. Raises UserError, which names `place`, if it is not UTF-8."""
        try:
            text = self.content.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{place} is not UTF-8 at byte {error.start}") from None
        # Not splitlines: it also splits at characters such as U+2028 that vocabularies hold.
        return text.removesuffix("\n").split("\n")


def holds_vocabulary(directory: Path) -> bool:
    """Whether `write_vocabulary` wrote to a directory."""
    return (directory / _SETTINGS_FILE).is_file()


def read_vocabulary(directory: Path) -> Vocabulary:
    """Reads what `write_vocabulary` wrote, from the `tokenizer` directory of a prepared corpus or of a run.

    Raises:
      UserError: the directory holds no vocabulary.
    """
    try:
        settings = load_json(directory / _SETTINGS_FILE)
        kind, casing = settings["kind"], settings["casing"]
        return Vocabulary(kind, casing, (directory / FILES[kind]).read_bytes())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise bad_input(
            error, directory, f"{directory} holds no tokenizer; `bert-jax prepare` writes one"
        ) from None


def sentencepiece_fault(model: Any) -> str | None:
    """What exports cannot rebuild of a SentencePiece model, for messages; None if they can.

    Args:
      model: a `ModelProto` of SentencePiece's.
    """
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
        return "is a SentencePiece model, but not a unigram one; only those are supported"
    for spec, settings in _REBUILT.items():
        for name, value in settings.items():
            if (found := getattr(getattr(model, spec), name)) != value:
                return (
                    f"is a SentencePiece model with {name}={str(found).lower()}; only "
                    f"{name}={str(value).lower()} is supported"
                )
    return None


def records_directory(corpus: str) -> Path:
    """Where the `vocab.txt` of TFRecords lies, which a directory, a glob or one file names."""
    path = Path(corpus)
    while not path.is_dir() and (path.is_file() or re.search(r"[*?\[]", str(path))):
        path = path.parent
    return path


def read_records_vocabulary(corpus: str) -> Vocabulary | None:
    """The `vocab.txt` beside TFRecords, the one that they were made with; None if there is none.

    The casing is a guess. Raises UserError if the file is not UTF-8.
    """
    file = records_directory(corpus) / FILES["wordpiece"]
    if not file.is_file():
        return None
    content = file.read_bytes()
    vocabulary = Vocabulary("wordpiece", guess_casing(content, file), content)
    # As preparing writes it, so that two vocabularies of the same pieces are equal.
    return dataclasses.replace(
        vocabulary, content="".join(f"{piece}\n" for piece in vocabulary.pieces()).encode()
    )


def write_vocabulary(directory: Path, vocabulary: Vocabulary) -> None:
    """Writes a vocabulary's file, and the settings for loading it, to a directory, made if missing."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / vocabulary.file_name).write_bytes(vocabulary.content)
    settings = {"kind": vocabulary.kind, "casing": vocabulary.casing}
    (directory / _SETTINGS_FILE).write_text(json.dumps(settings) + "\n", encoding="utf-8")


def guess_casing(content: bytes, file: Path) -> Casing:
    """Guesses the casing of a `vocab.txt` whose directory does not record it: cased if a word has capitals.

    Raises UserError, which names the file, if its content is not UTF-8.
    """
    words = (piece.removeprefix("##") for piece in Vocabulary("wordpiece", "cased", content).pieces(file))
    return "cased" if any(word.isalpha() and word != word.lower() for word in words) else "uncased"
