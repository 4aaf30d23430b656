"""Benchmarks compare only what is comparable."""

import pytest

from benchmarks.train_step import check_same_platform


def test_a_cpu_is_not_compared_with_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    check_same_platform({"bert_jax": "gpu", "transformers": "gpu"})
    with pytest.raises(SystemExit, match="2"):
        check_same_platform({"bert_jax": "cpu", "transformers": "gpu"})
    (line,) = capsys.readouterr().err.splitlines()
    assert "error: bert_jax found a cpu, transformers found a gpu; " in line
