"""Fixtures of the tests of preparing."""

from pathlib import Path

import pytest

from tests.data_pipeline.preparing.small_text import write_vocabulary


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """The words of the small text, in a file of the test's own."""
    return write_vocabulary(tmp_path / "vocab.txt")
