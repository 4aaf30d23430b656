"""How the code of one start is told from that of another."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bert_jax.workdir import provenance


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit that stands in for the one with this package's code."""
    directory = tmp_path / "bert_jax"
    directory.mkdir()
    (directory / "a.py").write_text("one = 1\n")
    (directory / "provenance.py").touch()
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "__file__", str(directory / "provenance.py"))
    return directory


def start() -> dict[str, Any]:
    return provenance.this_start()


def test_uncommitted_code_is_another_code(directory: Path) -> None:
    committed = start()
    assert "uncommitted changes" not in provenance.code(committed)
    (directory.parent / "notes.txt").write_text("no code")
    assert provenance.code(start()) == provenance.code(committed)
    codes = []
    changes = (
        ("a.py", "one = 2\n"),
        ("\xfc.py", "two = 2\n"),
        ("\xfc.py", "two = 3\n"),
        ("a.py", "# \xfc\n"),
    )
    for name, text in changes:
        (directory / name).write_text(text, encoding="latin-1")
        codes.append(provenance.code(start())["uncommitted changes"])
    assert len(set(codes)) == 4
    (note,) = provenance.describe_code_changes(committed, start())
    assert f"uncommitted changes unset -> {codes[-1]}: the run goes on, but it may not be" in note


def test_other_flags_of_the_compiler_are_noted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    before = start()
    assert provenance.describe_code_changes(before, start()) == []
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4 --xla_gpu_x=false")
    (note,) = provenance.describe_code_changes(before, start())
    assert "XLA_FLAGS unset -> --xla_gpu_x=false: the run goes on, but it may not be bit" in note
    del before["xla_flags"]  # a record of before they were kept
    assert "XLA_FLAGS unset -> " in provenance.describe_code_changes(before, start())[0]


def test_other_devices_are_noted() -> None:
    before = start()
    devices = before["devices"]
    (note,) = provenance.describe_code_changes({**before, "devices": devices * 2}, before)
    assert f"devices {2 * len(devices)} x cpu -> {len(devices)} x cpu: the run goes on" in note


def test_code_installed_inside_another_repository_has_no_commit(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start()["git"]["commit"]
    installed = directory.parent / ".venv" / "bert_jax"
    installed.mkdir(parents=True)
    (directory.parent / ".gitignore").write_text(".venv\n")
    (installed / "provenance.py").touch()
    monkeypatch.setattr(provenance, "__file__", str(installed / "provenance.py"))
    assert not start().get("git")
