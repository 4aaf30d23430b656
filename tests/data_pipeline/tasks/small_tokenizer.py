"""A tokenizer of few pieces, read as a fine-tuning run reads its model's."""

from pathlib import Path

from tokenizers import Tokenizer

from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from data_pipeline.tasks.encode import TaskTokenizer, make_task_tokenizer
from data_pipeline.tokenizer import SPECIAL_TOKENS, WordPiece

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz0123456789")
SIGNS = ("[", "]", ".", ",", '"', "'", "-")
PIECES = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *SIGNS, "mask")


def make_tokenizer(directory: Path, *more: str) -> TaskTokenizer:
    """Lower-case letters, a piece each, and `more` pieces."""
    return make_task_tokenizer(read_model_tokenizer(directory, *more))


def read_model_tokenizer(directory: Path, *more: str) -> Tokenizer:
    WordPiece((*PIECES, *more), "uncased").save(directory)
    return read_tokenizer(directory)


def pieces(tokenizer: TaskTokenizer, ids: object) -> str:
    """Pieces of an array of ids, a blank between them."""
    return " ".join(tokenizer.tokenizer.id_to_token(int(index)) for index in ids)
