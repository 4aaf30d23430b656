"""A model's vocabulary in the form that this project and google-research/bert keep it: one file."""

import dataclasses
import json
from pathlib import Path
from typing import Literal

from data_pipeline.errors import bad_input

Casing = Literal["cased", "uncased"]
Kind = Literal["wordpiece", "sentencepiece"]

FILES: dict[Kind, str] = {"wordpiece": "vocab.txt", "sentencepiece": "spiece.model"}
_SETTINGS_FILE = "settings.json"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """All that decides which ids a text gets."""

    kind: Kind
    casing: Casing
    content: bytes = dataclasses.field(repr=False)
    """Of `vocab.txt`, a piece a line, or of `spiece.model`."""

    @property
    def file_name(self) -> str:
        """What the file is called in a model's folder."""
        return FILES[self.kind]

    def pieces(self) -> list[str]:
        """The lines of a `vocab.txt`, by id."""
        # Not splitlines: it also splits at characters such as U+2028 that vocabularies hold.
        text = self.content.decode("utf-8-sig").replace("\r\n", "\n")
        return text.removesuffix("\n").split("\n")


def read_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary in the `tokenizer` folder of a prepared corpus or of a run.

    Raises:
      UserError: the folder holds none.
    """
    try:
        settings = json.loads((folder / _SETTINGS_FILE).read_text(encoding="utf-8"))
        kind, casing = settings["kind"], settings["casing"]
        return Vocabulary(kind, casing, (folder / FILES[kind]).read_bytes())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise bad_input(error, f"{folder} holds no tokenizer; `bert-jax prepare` writes one") from None


def guess_casing(content: bytes) -> Casing:
    """The casing of a `vocab.txt` whose folder does not tell it: uncased ones have no capital letters."""
    pieces = Vocabulary("wordpiece", "cased", content).pieces()
    words = (piece.removeprefix("##") for piece in pieces)
    return "cased" if any(word.isalpha() and word != word.lower() for word in words) else "uncased"
