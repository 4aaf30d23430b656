"""A tokenizer for tests that knows every letter, so that no text of letters is unknown to it."""

import json
import string
from pathlib import Path

from tokenizers import Tokenizer

from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from data_pipeline.vocabulary_file import SPECIAL_TOKENS

CHARACTERS = string.ascii_lowercase + string.digits
VOCABULARY = (
    *SPECIAL_TOKENS,
    *CHARACTERS,
    *(f"##{character}" for character in CHARACTERS),
    *string.punctuation,
    *("the", "king", "##dom", "of", "paris", "france", "##ch", "18", "##95", "was", "in", "on", "東"),
)


def make_tokenizer(directory: Path) -> Tokenizer:
    """Uncased WordPiece over letters, digits, punctuation and a few words."""
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (directory / "settings.json").write_text(json.dumps({"kind": "wordpiece", "casing": "uncased"}))
    return read_tokenizer(directory)[0]
