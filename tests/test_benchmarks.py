"""The benchmark of the step runs, and compares only what is comparable."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.train_step import check_same_platform


def test_a_cpu_is_not_compared_with_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    check_same_platform({"bert_jax": "gpu", "transformers": "gpu"})
    with pytest.raises(SystemExit, match="2"):
        check_same_platform({"bert_jax": "cpu", "transformers": "gpu"})
    (line,) = capsys.readouterr().err.splitlines()
    assert "error: bert_jax found a cpu, transformers found a gpu; " in line


@pytest.mark.slow
def test_a_small_step_is_measured() -> None:
    program = [sys.executable, "benchmarks/train_step.py", "--only", "bert_jax"]
    sizes = ["--layers=1", "--hidden=32", "--heads=2", "--batch=2", "--length=16", "--predictions=2"]
    done = subprocess.run(
        [*program, *sizes, "--steps=1", "--repeats=1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bert_jax"]["sequences_per_second"] > 0
