"""Tests are skipped if the extra that they need is missing; asking for them alone is then an error."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT_TORCH = "import sys, pytest; sys.modules['torch'] = None; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        (["-m", "parity"], pytest.ExitCode.USAGE_ERROR, "ERROR: -m parity needs torch"),
        (["-n0"], pytest.ExitCode.OK, ": needs torch"),
    ],
)
def test_what_cannot_be_run_fails_only_if_it_was_asked_for(asked: list[str], status: int, said: str) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, *asked, "tests/parity/test_imports.py"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if said in line]
    assert (ended.returncode, len(lines)) == (status, 1), ended.stdout + ended.stderr
    assert lines[0].endswith(": pip install -e '.[test,parity]'")
