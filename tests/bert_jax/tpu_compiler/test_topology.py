"""A topology that does not exist, and a compiler that is not there, are said in one line."""

import sys

import pytest

from bert_jax.cli.main import main

NEAREST = {
    "v5e:4x5": "v5e:2x2, v5e:2x4, v5e:4x4",
    "v5p:4x4": "v5p:2x2x1, v5p:2x2x2",
    "v9:2x2": "v4, v5e, v5p, v6e",
    "": "v4, v5e, v5p, v6e",
}


@pytest.mark.parametrize("name", NEAREST)
def test_an_unknown_topology_is_refused_with_valid_ones(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "base", "--topology", name]) == 2
    error = capsys.readouterr().err
    assert repr(name) in error
    assert NEAREST[name] in error
    assert error.count("\n") == 1


def test_a_missing_compiler_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    assert main(["compile", "base", "--topology", "v5e:2x2"]) == 2
    assert "bert-jax[tpu]" in capsys.readouterr().err


def test_a_phase_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "base", "--topology", "v5e:2x2", "--phase", "2"]) == 2
    assert "base has 2" in capsys.readouterr().err
