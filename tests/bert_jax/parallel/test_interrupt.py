"""What processes that stop together know of a signal."""

import pytest
from jax.experimental import multihost_utils

from bert_jax.parallel import processes
from bert_jax.parallel.interrupt import Interrupt


def test_an_agreed_stop_counts_as_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come in the last step of a job of a study, whose worker then stops by this number."""
    shared, before = processes._SharedInterrupt(), Interrupt.num_requests
    for reached, stops in ((False, False), (True, True), (False, True)):
        monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda _, r=reached: r)
        assert shared.requested() == stops
    monkeypatch.undo()
    assert Interrupt.num_requests == before + 1
