"""`--metric` chooses the best trial, and which metrics `bert-jax report` shows."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bert_jax.cli.main import main
from tests.bert_jax.small_run import make_run

TEXTS = "text\tlabel\nthe cat\tx\na dog\ty\nthe mat\tx\n"
FIRST, SECOND = (f"lr{rate}-batch2-epochs1-seed0" for rate in ("0.001", "0.002"))


@pytest.fixture(scope="module")
def one_trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial that is the best by accuracy, whatever others do, and the worst by macro F1."""
    directory = tmp_path_factory.mktemp("metric")
    make_run(directory / "model", num_layers=1)
    (directory / "data").mkdir()
    for split in ("train", "dev"):
        (directory / "data" / f"{split}.tsv").write_text(TEXTS)
    assert finetune(directory, "1e-3") == 0
    file = directory / "out" / "trials" / FIRST / "result.json"
    result = json.loads(file.read_text())
    result["metrics"] |= {"accuracy": 2.0, "macro_f1": -1.0}
    file.write_text(json.dumps(result))
    return directory


@pytest.fixture
def grid(one_trial: Path, tmp_path: Path) -> Path:
    """A grid of that trial, for one test."""
    return shutil.copytree(one_trial, tmp_path / "grid", symlinks=True)


def finetune(directory: Path, rate: str, *more: str) -> int:
    paths = [
        f"--model={directory / 'model'}",
        f"--data={directory / 'data'}",
        f"--output={directory / 'out'}",
    ]
    flags = ["--max-seq-length=16", "--epochs=1", "--batch-size=2", f"--learning-rate={rate}"]
    return main(["finetune", "classify", *paths, *flags, *more])


def results(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "out" / "results.json").read_text())


def test_it_chooses_the_best_trial(grid: Path) -> None:
    assert finetune(grid, "2e-3", "--metric=macro_f1") == 0
    found = results(grid)
    assert found["metric"]["name"] == "macro_f1"
    assert found["best"]["trial"] == SECOND
    assert (grid / "out" / "best").readlink().name == SECOND
    assert (grid / "out" / "best" / "checkpoints").is_dir()
    assert found["rows"][0]["mean"] == -1
    assert [one["metric"]["name"] for one in found["by_metric"]] == ["accuracy", "macro_f1", "matthews"]


def test_a_finished_grid_chooses_again_without_training(grid: Path, capsys: pytest.CaptureFixture) -> None:
    result = (grid / "out" / "best" / "result.json").stat().st_mtime_ns
    assert finetune(grid, "1e-3", "--metric=matthews") == 0
    assert "trial 1" not in capsys.readouterr().out
    assert results(grid)["metric"]["name"] == "matthews"
    assert (grid / "out" / "best" / "result.json").stat().st_mtime_ns == result
    assert finetune(grid, "1e-3") == 0
    assert results(grid)["metric"]["name"] == "accuracy"


def test_a_trial_whose_checkpoint_is_gone_is_not_chosen(grid: Path, capsys: pytest.CaptureFixture) -> None:
    assert finetune(grid, "2e-3", "--metric=macro_f1") == 0
    before = results(grid)
    capsys.readouterr()
    assert finetune(grid, "2e-3") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{FIRST} is best by accuracy, but its checkpoint was deleted when {SECOND} was" in line
    assert results(grid) == before
    assert (grid / "out" / "best").readlink().name == SECOND


def test_trials_that_diverge_are_worst_by_every_metric(grid: Path) -> None:
    assert finetune(grid, "1e38", "--metric=macro_f1") == 0
    (file,) = (grid / "out" / "trials").glob("lr1e+38*/result.json")
    result = json.loads(file.read_text())
    assert result["metrics"] == {"accuracy": None, "macro_f1": None, "matthews": None}
    del result["metrics"]["matthews"]  # as in grids of earlier versions
    file.write_text(json.dumps(result))
    assert finetune(grid, "1e38", "--metric=matthews") == 0
    assert results(grid)["best"]["trial"] == FIRST


def test_a_metric_that_the_task_lacks_is_refused(grid: Path, capsys: pytest.CaptureFixture) -> None:
    assert finetune(grid, "2e-3", "--metric=f1") == 2
    assert "--metric is 'f1'; valid: accuracy, macro_f1, matthews" in capsys.readouterr().err
    assert len(list((grid / "out" / "trials").iterdir())) == 1


def test_a_report_shows_the_one_that_is_asked_for(grid: Path, capsys: pytest.CaptureFixture) -> None:
    assert finetune(grid, "1e-3") == 0
    run, table = str(grid / "out"), grid / "out.csv"
    capsys.readouterr()
    assert main(["report", run]) == 0
    assert "2.0000" in capsys.readouterr().out
    assert main(["report", "--metric", "classify=macro_f1", "--csv", str(table), run]) == 0
    said = capsys.readouterr().out
    assert "-1.0000" in said
    assert "macro" in said
    first, *_ = csv.DictReader(table.read_text().splitlines())
    assert (first["metric"], first["score"]) == ("macro_f1", "-1.0")
    for word, message in (
        ("classify=f1", f"{run} has no metric 'f1'; valid: accuracy, macro_f1, matthews"),
        ("mrpc=accuracy", "--metric names mrpc, but no run of that task was given"),
        ("accuracy", "--metric accuracy: give a task and its metric, such as mrpc=accuracy"),
    ):
        assert main(["report", run, "--metric", word]) == 2
        assert capsys.readouterr().err == f"bert-jax: error: {message}\n"


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"metrics": {"accuracy": "high"}}'])
def test_a_damaged_result_is_named(content: str, grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = grid / "out" / "trials" / FIRST / "result.json"
    file.write_text(content)
    assert finetune(grid, "1e-3") == 2
    assert f"{file} is damaged; remove it, and the trial is run again" in capsys.readouterr().err
