"""Hugging Face's `tokenizer.json`: which of them this project can express exactly, as which vocabulary."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from data_pipeline.corpus import byte_bpe, wordpiece
from data_pipeline.corpus.vocabulary_file import Vocabulary
from data_pipeline.errors import UserError


def load_tokenizer_json(file: Path) -> Tokenizer:
    """Loads the tokenizer of a `tokenizer.json`. Raises UserError if it is damaged."""
    try:
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.encode("", "")  # a template without its tokens is found only when it is used
    except BaseException as error:  # a panic is no Exception, and its class cannot be imported
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    return tokenizer


def find_fault(tokenizer: Tokenizer) -> str | None:
    """The rule because of which no corpus has text as a tokenizer cuts it, for messages; None if one can."""
    kind = _kind(tokenizer)
    if kind == "WordPiece":
        return wordpiece.find_fault(tokenizer)
    if kind == "BPE":
        return byte_bpe.find_fault(tokenizer)
    return f"its model is {kind}, not WordPiece or byte-level BPE"


def as_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer without fault."""
    is_wordpiece = _kind(tokenizer) == "WordPiece"
    return wordpiece.as_vocabulary(tokenizer) if is_wordpiece else byte_bpe.as_vocabulary(tokenizer)


def read_json_vocabulary(file: Path) -> Vocabulary:
    """Reads the vocabulary in a `tokenizer.json`, or in a `vocab.json` with its `merges.txt` beside it.

    Raises UserError if it is damaged, or cuts text by rules that this project does not have.
    """
    is_vocab_json = file.name.endswith("vocab.json")
    tokenizer = byte_bpe.read_vocab_json(file) if is_vocab_json else load_tokenizer_json(file)
    if fault := find_fault(tokenizer):
        raise UserError(f"the tokenizer in {file} cannot be followed: {fault}")
    return as_vocabulary(tokenizer)


def _kind(tokenizer: Tokenizer) -> str:
    return str(json.loads(tokenizer.to_str())["model"]["type"])
