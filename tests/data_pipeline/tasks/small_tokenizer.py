"""A tokenizer of few pieces, made as that of a pretrained model is."""

from pathlib import Path

from tokenizers import Tokenizer

from bert_jax.formats import huggingface_tokenizer
from data_pipeline.corpus.tokenizer import WordPiece
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, read_vocabulary
from data_pipeline.tasks.finetuning.encode import TaskTokenizer, make_task_tokenizer

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz0123456789")
SIGNS = ("[", "]", ".", ",", '"', "'", "-")
PIECES = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *SIGNS, "mask")


def make_tokenizer(directory: Path, *more: str) -> TaskTokenizer:
    """A tokenizer with a piece for each lower-case letter, and `more` pieces."""
    return make_task_tokenizer(read_model_tokenizer(directory, *more))


def read_model_tokenizer(directory: Path, *more: str) -> Tokenizer:
    WordPiece((*PIECES, *more), "uncased").save(directory)
    return huggingface_tokenizer.make_tokenizer(read_vocabulary(directory))


def pieces(tokenizer: TaskTokenizer, ids: object) -> str:
    """Pieces of an array of ids, a blank between them."""
    return " ".join(tokenizer.original.id_to_token(int(index)) for index in ids)
