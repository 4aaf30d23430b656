"""Fixtures of the data pipeline's tests."""

import pytest

from data_pipeline.corpus.documents import Corpus
from tests.data_pipeline.small_corpus import make_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The opened train split of a corpus that no test alters."""
    return make_corpus(tmp_path_factory.mktemp("small") / "corpus")
