"""`inspect` and `evaluate` of a run: which steps it trained, and where its corpus is."""

import dataclasses
from pathlib import Path

import pytest

from bert_jax.workdir.record import BranchPoint, RunRecord, write_record
from experiments.base import BASE
from tests.conftest import Refused


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The directory of a branch that was started elsewhere."""
    experiment = dataclasses.replace(BASE, data=dataclasses.replace(BASE.data, corpus="corpora/mine"))
    branched_from = BranchPoint("first", 300)
    write_record(tmp_path, RunRecord("base", experiment, "a corpus", branched_from=branched_from))
    return str(tmp_path)


def test_steps_before_a_branch_are_those_of_the_other_run(run: str, refused: Refused) -> None:
    error = refused(["inspect", run, "--step", "299"])
    assert "branched from first at step 300; inspect that run, or give a step from 300 on" in error


@pytest.mark.parametrize("command", ["inspect", "evaluate"])
def test_a_corpus_that_is_not_seen_from_here_is_named(command: str, run: str, refused: Refused) -> None:
    words = [command, run] if command == "inspect" else [command, "--workdir", run]
    assert "was trained on corpora/mine, as seen from the directory where the run was" in refused(words)
