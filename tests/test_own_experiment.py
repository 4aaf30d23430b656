"""An experiment that a file of one's own defines is trained, shown and refused like a named one."""

import sys
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.workdir.record import read_record
from tests.tiny_run import arguments, assert_same_run, write_corpus

FILE = """
import dataclasses
from bert_jax.objectives import MaskedLM
from experiments.quickstart import QUICKSTART_BERT

class Mine(MaskedLM):
    pass

SMALL = dataclasses.replace(QUICKSTART_BERT, seed=3)
OWN = SMALL.with_objective(Mine())
WORDS = "none"
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("own_runs", "own_runs_that_fail"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("own_runs.py").write_text(FILE)
    Path("own_runs_that_fail.py").write_text("x = 1 / 0\n")


def test_it_is_trained_and_resumed_with_its_values() -> None:
    corpus = write_corpus(Path("corpus"))

    def train(workdir: str, name: str, *flags: str) -> int:
        words = arguments(Path(workdir), corpus, "--num-train-steps", "40", *flags)
        return main([words[0], name, *words[2:]])

    assert train("run", "own_runs:OWN", "--data.pairing", "contiguous") == 0
    record = read_record(Path("run"))
    assert (record.experiment_name, record.experiment.seed) == ("own_runs:OWN", 3)
    assert type(record.experiment.objective).__name__ == "Mine"
    named = ("quickstart_bert", "--objective", "mlm", "--data.pairing", "contiguous", "--seed", "3")
    assert train("named", *named) == 0
    assert_same_run(Path("run"), Path("named"))
    assert train("run", "own_runs:OWN", "--data.pairing", "contiguous") == 0


def test_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "own_runs:SMALL"]) == 0
    assert "seed = 3\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_runs:LARGE", "own_runs has no experiment 'LARGE'; it has QUICKSTART_BERT, SMALL, OWN"),
        ("own_runs:WORDS", "own_runs has no experiment 'WORDS'; it has "),
        (
            "no_runs:SMALL",
            "experiment 'no_runs:SMALL' cannot be imported: ModuleNotFoundError: No module named",
        ),
        (
            "own_runs_that_fail:SMALL",
            "cannot be imported: ZeroDivisionError: division by zero, line 1 of own_runs_that_fail\n",
        ),
        ("own_runs", "unknown experiment 'own_runs'; nearest: no_nsp, "),
    ],
)
def test_what_is_no_experiment_is_named(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", name, "--workdir", "run", "--check-flags", "1"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("run").exists()
