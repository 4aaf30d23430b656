"""A task with a head of its own is one file: all commands know it by `module:NAME`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from tests.bert_jax.small_run import make_run, trainable_params
from tests.test_docs import ROOT, python_blocks


@pytest.fixture
def own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The task of docs/architecture.md, in a file of the working directory."""
    blocks = python_blocks(ROOT / "docs" / "architecture.md")
    (code,) = (block for block in blocks if block.startswith("# counting.py"))
    (tmp_path / "counting.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    yield "counting:COUNT"
    sys.modules.pop("counting", None)


def test_it_is_trained_reported_and_applied(
    tmp_path: Path, own_task: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    make_run(tmp_path / "model", make_params=trainable_params, num_layers=1)
    rows = "".join(f"{'the ' * n}\t{n}\n" for n in (1, 3, 5, 7))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tnumber\n{rows}")
    paths = [f"--model={tmp_path / 'model'}", f"--data={tmp_path}", f"--output={tmp_path / 'out'}"]
    rates = ["--learning-rate", "1e-2", "1e-9", "--epochs=10", "--batch-size=4", "--max-seq-length=16"]
    assert main(["finetune", own_task, *paths, *rates]) == 0
    said = capsys.readouterr().out
    assert f"try it:  PYTHONPATH=. bert-jax predict --model {tmp_path / 'out'} --input" in said
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = {trial["learning_rate"]: trial["metrics"]["absolute_error"] for trial in results["trials"]}
    assert results["best"]["learning_rate"] == 1e-2
    assert scores[1e-2] < scores[1e-9]

    assert main(["report", str(tmp_path / "out")]) == 0
    assert f"{scores[1e-2]:.4f}" in capsys.readouterr().out
    target = tmp_path / "predicted.tsv"
    flags = [f"--model={tmp_path / 'out'}", f"--input={tmp_path / 'dev.tsv'}", f"--output={target}"]
    del sys.modules["counting"]
    assert main(["predict", *flags]) == 2  # a model may not choose code of the working directory
    assert "must be installed, or lie in a directory of PYTHONPATH" in capsys.readouterr().err
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["predict", *flags]) == 0
    assert target.read_text().startswith("text\tnumber\tpredicted\n")
    assert main(["convert", f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'exported'}"]) == 2
    assert "transformers has no class for model-counting:COUNT" in capsys.readouterr().err
    shape = ["--epochs=1", "--batch-size=4", "--max-seq-length=16", "--keep-head"]
    further = [f"--model={tmp_path / 'out'}", f"--output={tmp_path / 'further'}", *shape]
    assert main(["finetune", own_task, paths[1], *further]) == 0


def test_a_wrong_name_is_refused(own_task: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["finetune", own_task + "S", "--help"]) == 2
    assert "counting has no task 'COUNTS'; it has COUNT\n" in capsys.readouterr().err
    assert main(["finetune", "counted:COUNT", "--help"]) == 2
    assert "task 'counted:COUNT' cannot be imported" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["finetune", own_task, "--help"])
    assert "A number for a text. --data: A directory with train and dev" in capsys.readouterr().out
