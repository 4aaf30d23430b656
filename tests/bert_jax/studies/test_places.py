"""How many workers a machine has room for."""

import math
from pathlib import Path

import pytest

from bert_jax.studies import places


@pytest.mark.parametrize(
    ("limit", "left"), [("1000\n", 1000 - 700 + 50), ("max\n", math.inf), (None, math.inf)]
)
def test_memory_is_that_of_the_container(tmp_path: Path, limit: str | None, left: float) -> None:
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("700\n")
        (tmp_path / "memory.stat").write_text("active_file 20\ninactive_file 50\n")
    assert places._left_in_container(tmp_path) == left
