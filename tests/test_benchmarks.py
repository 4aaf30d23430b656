"""The benchmark of the step runs, and compares only what is comparable."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from benchmarks.published_flops import steps_of
from benchmarks.train_step import check_same_platform
from experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]


def test_a_cpu_is_not_compared_with_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    check_same_platform({"bert_jax": "gpu", "transformers": "gpu"})
    with pytest.raises(SystemExit, match="2"):
        check_same_platform({"bert_jax": "cpu", "transformers": "gpu"})
    (line,) = capsys.readouterr().err.splitlines()
    assert "error: bert_jax found a cpu, transformers found a gpu; " in line


def test_the_published_counts_of_flops_are_found() -> None:
    """Those of `flops_computation.py` of google-research/electra; its paper has 6.4e19 for both."""
    counts = {name: list(steps_of(EXPERIMENTS[name]))[-1][1] for name in ("base", "electra_base")}
    assert counts == pytest.approx({"base": 6.428e19, "electra_base": 6.425e19}, rel=1e-4)


def test_the_curves_of_the_documentation_are_drawn(tmp_path: Path) -> None:
    rows = sorted((ROOT / "docs" / "results").glob("wiki_*.jsonl"))
    program = [sys.executable, "benchmarks/plot_metrics.py", tmp_path / "wiki.png", *rows]
    subprocess.run(program, cwd=ROOT, check=True)
    assert (tmp_path / "wiki.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="a GPU is present")
def test_attention_is_not_measured_without_a_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/attention.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "attention.py: error: it needs a GPU; jax found a cpu"


@pytest.mark.slow
def test_a_small_step_is_measured() -> None:
    program = [sys.executable, "benchmarks/train_step.py", "--only", "bert_jax"]
    sizes = ["--layers=1", "--hidden=32", "--heads=2", "--batch=2", "--length=16", "--predictions=2"]
    done = subprocess.run(
        [*program, *sizes, "--steps=1", "--repeats=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bert_jax"]["sequences_per_second"] > 0
