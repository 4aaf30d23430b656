"""A task with a head of its own is a module and a line of the table: all commands know it."""

import json
import sys
import types
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.tasks import TASKS, Task
from tests.bert_jax.small_run import make_run, trainable_params
from tests.test_docs import ROOT, python_blocks


@pytest.fixture
def own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of docs/architecture.md."""
    blocks = python_blocks(ROOT / "docs" / "architecture.md")
    for package in ("data_pipeline", "bert_jax"):
        (code,) = (block for block in blocks if block.startswith(f"# {package}/tasks/counting.py"))
        module = types.ModuleType(f"{package}.tasks.counting")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, module.__name__, "exec"), vars(module))
    monkeypatch.setitem(TASKS, "count", Task("counting", "how many words"))


@pytest.mark.usefixtures("own_task")
def test_it_is_trained_reported_and_applied(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_run(tmp_path / "model", make_params=trainable_params, num_layers=1)
    rows = "".join(f"{'the ' * n}\t{n}\n" for n in (1, 3, 5, 7))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tnumber\n{rows}")
    paths = [f"--model={tmp_path / 'model'}", f"--data={tmp_path}", f"--output={tmp_path / 'out'}"]
    rates = ["--learning-rate", "1e-2", "1e-9", "--epochs=10", "--batch-size=4", "--max-seq-length=16"]
    assert main(["finetune", "count", *paths, *rates]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = {trial["learning_rate"]: trial["metrics"]["absolute_error"] for trial in results["trials"]}
    assert results["best"]["learning_rate"] == 1e-2
    assert scores[1e-2] < scores[1e-9]

    assert main(["report", str(tmp_path / "out")]) == 0
    assert f"{scores[1e-2]:.4f}" in capsys.readouterr().out
    target = tmp_path / "predicted.tsv"
    flags = [f"--model={tmp_path / 'out'}", f"--input={tmp_path / 'dev.tsv'}", f"--output={target}"]
    assert main(["predict", *flags]) == 0
    assert target.read_text().startswith("text\tnumber\tpredicted\n")
    assert main(["convert", f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'exported'}"]) == 2
    assert "transformers has no class for model-count (counting" in capsys.readouterr().err
    further = [*paths[:2], f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'further'}"]
    assert (
        main(
            [
                "finetune",
                "count",
                *further[1:],
                "--epochs=1",
                "--batch-size=4",
                "--max-seq-length=16",
                "--keep-head",
            ]
        )
        == 0
    )
