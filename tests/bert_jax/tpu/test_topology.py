"""A topology that does not exist and a compiler that is not installed give a one-line error."""

import sys

import pytest

from bert_jax.cli import compile as compile_command
from bert_jax.cli.main import main
from bert_jax.objectives.experiment import Experiment
from bert_jax.tpu.hlo import Exchange
from bert_jax.tpu.report import TooLarge, waiting_seconds
from bert_jax.tpu.topology import CHIPS, Slice
from tests.conftest import Refused

NEAREST = {
    "v5e:4x5": "v5e:2x2, v5e:2x4, v5e:4x4",
    "v5p:4x4": "v5p:2x2x1, v5p:2x2x2",
    "v5p:4x4x6": "v5p:AxBxC of up to 6144 chips, A <= B <= C multiples of 4",
    "v5p:8x4x4": "v5p:2x2x1, v5p:2x2x2",
    "v5p:0x4x4": "v5p:2x2x1, v5p:2x2x2",
    "v4:16x16x20": "v4:AxBxC of up to 4096 chips",
    "v5e:4x4x4": "v5e:16x16",
    "v9:2x2": "v4, v5e, v5p, v6e, tpu7x",
}


@pytest.mark.parametrize("name", NEAREST)
def test_an_unknown_topology_is_refused_with_valid_ones(name: str, refused: Refused) -> None:
    error = refused(["compile", "base", "--topology", name])
    assert repr(name) in error
    assert NEAREST[name] in error


@pytest.mark.parametrize(
    "name",
    [
        "v5e:2x2",
        "v4:2x2x1",
        "v4:16x16x16",
        "v5p:4x4x4",
        "v5p:4x4x12",
        "v5p:8x8x16",
        "v5p:16x16x24",
        "v6e:8x16",
        "tpu7x:4x4x8",
    ],
)
def test_slices_that_are_rented_out_are_known_and_a_missing_compiler_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    error = refused(["compile", "base", "--topology", name])
    assert "the TPU compiler is not installed: pip" in error
    assert "-e '.[tpu]'" in error


def test_a_phase_that_is_not_there_is_refused(refused: Refused) -> None:
    assert "base has 2" in refused(["compile", "base", "--topology", "v5e:2x2", "--phase", "2"])


@pytest.mark.parametrize(
    ("name", "gigabytes_a_second"),
    [
        ("v5e:2x2", 2 * 50),
        ("v5e:4x4", 2 * 50),  # open lines
        ("v5e:8x16", 3 * 50),
        ("v6e:16x16", 4 * 100),
        ("v5p:2x2x1", 2 * 100),
        ("v5p:2x4x4", 3 * 100),
        ("v4:4x4x8", 6 * 50),
        ("v5e:1x1", 0),
    ],
)
def test_a_chip_sends_over_all_its_links(name: str, gigabytes_a_second: float) -> None:
    kind, _, shape = name.partition(":")
    sides = tuple(map(int, shape.split("x")))
    assert Slice(name, CHIPS[kind], sides, ()).bandwidth == gigabytes_a_second * 1e9


@pytest.mark.parametrize(("hidden_seconds", "waiting"), [(0.0, 0.03), (0.004, 0.018), (0.02, 0.0)])
def test_a_chip_waits_for_what_nothing_hides(hidden_seconds: float, waiting: float) -> None:
    where = Slice("v5e:4x4", CHIPS["v5e"], (4, 4), (None,) * 16)  # type: ignore[arg-type]
    gathered = 16 / 15 * 0.01 * where.bandwidth  # of which a chip sends 15/16 in 10 ms
    hidden = int(hidden_seconds * where.chip.clock_hz)
    exchange = Exchange("all-gather", int(gathered), None, hidden, count=3)
    assert waiting_seconds(exchange, where) == pytest.approx(waiting, abs=1e-6)


def test_of_a_chip_of_two_devices_batches_are_a_devices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compile_step(experiment: Experiment, *_: object) -> None:
        raise TooLarge(f"{experiment.global_batch_size} rows")

    monkeypatch.setattr(compile_command, "compile_step", compile_step)
    slices = {"tpu7x:2x2x1": ("device", 8), "v5p:2x2x1": ("chip", 4)}
    for name, (unit, devices) in slices.items():
        where = Slice(name, CHIPS[name.partition(":")[0]], (2, 2, 1), tuple(range(devices)))
        monkeypatch.setattr(compile_command, "open_slice", lambda _, where=where: where)
        assert main(["compile", "base", "--topology", name, "--batch-per-chip", "8"]) == 1
        first, second = capsys.readouterr().err.splitlines()
        assert first == f"compiling base for {name}, 8 sequences a {unit}; this takes a minute or more"
        assert second == f"8 sequences a {unit} do not fit: {8 * devices} rows"
