"""What a run of the quickstart ends with."""

import json
from pathlib import Path

import pytest

from bert_jax.cli.showcase import export_and_fill, summarise
from bert_jax.objectives import LeftToRight, MaskedLMAndNSP
from bert_jax.training.metric_log import METRICS_FILE
from tests.bert_jax.small_run import make_run

GUESSED = {"mlm_accuracy": 0.125, "mlm_guess_accuracy": 0.125, "nsp_accuracy": 0.5, "nsp_guess_accuracy": 0.6}


@pytest.mark.parametrize(("mlm_accuracy", "warned"), [(0.125, True), (0.13, True), (0.2, False)])
def test_a_run_that_learnt_nothing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mlm_accuracy: float, warned: bool
) -> None:
    row = {"step": 8, "split": "heldout", "examples": 9.0, **GUESSED, "mlm_accuracy": mlm_accuracy}
    (tmp_path / METRICS_FILE).write_text(json.dumps(row) + "\n")
    summarise(tmp_path, MaskedLMAndNSP())
    said = capsys.readouterr().out
    assert "always guessing the most frequent token: 12.5%" in said
    assert ("hardly better than guessing" in said) == warned


def test_a_model_trained_left_to_right_is_exported_and_fills_no_mask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", "ltr")
    export_and_fill(tmp_path / "run", "a corpus that nothing reads")
    assert (tmp_path / "run" / "export" / "config.json").exists()
    assert "masked" not in capsys.readouterr().out


def test_what_transformers_lacks_is_said_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run", "ltr")
    monkeypatch.setattr(LeftToRight, "transformers_class", None)
    export_and_fill(tmp_path / "run", "a corpus that nothing reads")
    assert not (tmp_path / "run" / "export").exists()
    assert "not exported: transformers has no class for run" in capsys.readouterr().out


def test_an_export_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run", "ltr")
    mine = tmp_path / "run" / "export" / "mine.txt"
    mine.parent.mkdir()
    mine.touch()
    export_and_fill(tmp_path / "run", "a corpus that nothing reads")
    assert list(mine.parent.iterdir()) == [mine]
    assert "export is there already" in capsys.readouterr().out
