"""Fixtures of the task tests."""

import string

import pytest
from tokenizers import Tokenizer

from tests.data_pipeline.tasks.small_tokenizer import SIGNS, read_model_tokenizer

WORDS = ("the", "king", "##dom", "of", "paris", "france", "##ch", "18", "##95", "was", "in", "on", "東")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Knows every letter and sign, and a few words, so that no text of letters is unknown to it."""
    signs = (sign for sign in string.punctuation if sign not in SIGNS)
    return read_model_tokenizer(tmp_path_factory.mktemp("tokenizer"), *signs, *WORDS)
