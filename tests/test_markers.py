"""Every test is run by `.ci/run`, except those that need BERT_JAX_POD_KILLS or BERT_JAX_TEST_DATA.

What needs an extra that is missing is skipped, unless it was asked for.
"""

import configparser
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT_TORCH = "import sys, pytest; sys.modules['torch'] = None; sys.exit(pytest.main(sys.argv[1:]))"

SELECT = """
import shlex, sys, pytest

class Selection:
    def pytest_collection_finish(self, session):
        print("selected", *(item.name for item in session.items))

*stages, settings, file = sys.argv[1:]
for stage in stages:
    print()
    options = ["-c", settings, "--rootdir=.", "-n0", "-p", "no:cacheprovider", "--collect-only"]
    assert pytest.main([*options, *shlex.split(stage), file], [Selection()]) == 0
"""
"""Prints which tests of a file each of several option strings selects."""


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


def test_whatever_its_markers_a_test_is_run_by_a_stage_of_the_checks(tmp_path: Path) -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    registered = re.findall(r"^(\w+):", settings["tool:pytest"]["markers"], re.MULTILINE)
    extras = sorted(set(registered) - {"slow"})
    # A test needs one extra or none, and may be slow.
    tests = {
        "_".join(("test", *markers)): markers
        for markers in (tuple(filter(None, pair)) for pair in itertools.product(("", *extras), ("", "slow")))
    }
    file = tmp_path / "test_all.py"
    marks = ["".join(f"@pytest.mark.{marker}\n" for marker in markers) for markers in tests.values()]
    bodies = [f"{mark}def {name}(): ...\n" for name, mark in zip(tests, marks, strict=True)]
    file.write_text("import pytest\n" + "".join(bodies))

    # The README's command takes no option, and each of the others says by its marker which extra it has.
    stages = ["", *re.findall(r"^pytest (.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)]
    command = [sys.executable, "-c", SELECT, *stages, str(ROOT / "setup.cfg"), str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    selected = [line.split()[1:] for line in said.splitlines() if line.startswith("selected")]
    run = {
        name
        for stage, names in zip(stages, selected, strict=True)
        for name in names
        if set(tests[name]) <= {stage.removeprefix("-m "), "slow"}
    }
    assert tests.keys() - run == set()


def test_what_needs_an_extra_says_so_by_its_marker() -> None:
    """A test that skips itself where a package is missing would be run by no stage."""
    skipping = [
        path for path in (ROOT / "tests").rglob("test_*.py") if f"{'importor'}skip" in path.read_text()
    ]
    assert skipping == []
