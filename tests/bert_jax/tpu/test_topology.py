"""A topology that does not exist and a compiler that is not installed give a one-line error."""

import sys

import pytest

from bert_jax.cli.main import main

NEAREST = {
    "v5e:4x5": "v5e:2x2, v5e:2x4, v5e:4x4",
    "v5p:4x4": "v5p:2x2x1, v5p:2x2x2",
    "v5p:4x4x6": "v5p:AxBxC of up to 6144 chips, A <= B <= C multiples of 4",
    "v5p:8x4x4": "v5p:2x2x1, v5p:2x2x2",
    "v5p:0x4x4": "v5p:2x2x1, v5p:2x2x2",
    "v4:16x16x20": "v4:AxBxC of up to 4096 chips",
    "v5e:4x4x4": "v5e:16x16",
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


@pytest.mark.parametrize(
    "name", ["v4:2x2x1", "v4:16x16x16", "v5p:4x4x4", "v5p:4x4x12", "v5p:8x8x16", "v5p:16x16x24", "v6e:8x16"]
)
def test_slices_that_are_rented_out_are_known(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    assert main(["compile", "base", "--topology", name]) == 2
    assert "the TPU compiler is not installed" in capsys.readouterr().err


def test_a_missing_compiler_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    assert main(["compile", "base", "--topology", "v5e:2x2"]) == 2
    assert "-e '.[tpu]'" in capsys.readouterr().err


def test_a_phase_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "base", "--topology", "v5e:2x2", "--phase", "2"]) == 2
    assert "base has 2" in capsys.readouterr().err
