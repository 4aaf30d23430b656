"""How many workers a machine has room for."""

import dataclasses
import math
from pathlib import Path

import pytest

from bert_jax.objectives import LeftToRight
from bert_jax.studies import places
from experiments import EXPERIMENTS


@pytest.mark.parametrize(
    ("limit", "left"), [("1000\n", 1000 - 700 + 50), ("max\n", math.inf), (None, math.inf)]
)
def test_memory_is_that_of_the_container(tmp_path: Path, limit: str | None, left: float) -> None:
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("700\n")
        (tmp_path / "memory.stat").write_text("active_file 20\ninactive_file 50\n")
    assert places._left_in_container(tmp_path) == left


def test_the_memory_of_logits_is_that_of_the_predicted_positions() -> None:
    """A left-to-right model predicts nearly every token, and has six times the logits of a masked one."""
    masked = EXPERIMENTS["quickstart_bert"]
    largest = dataclasses.replace(masked, model=dataclasses.replace(masked.model, vocab_size=2**17))
    phase = masked.data.phases[0]
    rows = masked.global_batch_size
    expected = 3 * 4 * 2**17 * rows * (phase.max_seq_length - 1 - phase.max_predictions_per_seq)
    causal = largest.with_objective(LeftToRight())
    more = places.memory_of(causal) - places.memory_of(largest)
    assert more == pytest.approx(expected, rel=0.01)
