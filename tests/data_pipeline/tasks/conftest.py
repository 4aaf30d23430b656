"""Fixtures of the task tests."""

import pytest
from tokenizers import Tokenizer

from tests.data_pipeline.tasks.letters import make_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
