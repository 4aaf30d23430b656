"""Commands of README.md and docs/ have flags that exist, Python imports what exists, links lead somewhere."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax.cli import main as main_module
from bert_jax.cli.main import COMMANDS, main
from bert_jax.training.metric_log import METRICS_FILE, read_rows
from tests.bert_jax.small_run import make_run
from tests.tiny_run import arguments, write_corpus

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OURS = {"bert_jax", "data_pipeline", "experiments"}
# `bert-jax` writes its arguments, and a PATH without programs lets nothing else run.
STAND_IN = """
bert-jax() { printf '%s\\t' "$@" >&3; echo >&3; }
srun() { "$@"; }
"""


def documented_commands(page: Path, directory: Path) -> Iterator[list[str]]:
    """The arguments of each `bert-jax` in the shell blocks of a page, loops and variables expanded."""
    log = directory / "commands"
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        script = f"exec 3> {log}\n{STAND_IN}{block}"
        env = {"PATH": str(directory), "PWD": str(directory)}
        bash = os.path.realpath("/bin/bash")
        subprocess.run([bash, "-c", script], cwd=directory, env=env, stderr=subprocess.DEVNULL, check=False)
        commands = [line.split("\t")[:-1] for line in log.read_text(encoding="utf-8").splitlines()]
        assert len(commands) >= len(re.findall(r"^(?:srun )?bert-jax ", block, re.MULTILINE))
        yield from commands


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_commands_are_accepted(page, tmp_path, monkeypatch):
    for name in COMMANDS:
        module = importlib.import_module(f"bert_jax.cli.{name.replace('-', '_')}")
        monkeypatch.setattr(module, "run", functools.wraps(module.run)(lambda args: 0))
    monkeypatch.setattr(main_module, "run_with_buckets", lambda command, run, args: run(args))
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(
        r"```python\n# (\w+\.py)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command in documented_commands(page, tmp_path):
        assert main(command) == 0, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_documented_python_imports_exists(page):
    for block in python_blocks(page):
        for node in ast.walk(ast.parse(block)):
            is_ours = isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in OURS
            if is_ours and f"# {node.module.replace('.', '/')}.py\n" not in page.read_text(encoding="utf-8"):
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_python_of_the_models_page_runs(tmp_path, monkeypatch):
    (tmp_path / "exported").mkdir()
    make_run(tmp_path / "exported" / "mine")
    monkeypatch.chdir(tmp_path)
    encode, embed, *_ = python_blocks(ROOT / "docs" / "models.md")
    exec(encode, {})
    exec(embed, {})


def test_the_objective_of_the_architecture_page_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    blocks = python_blocks(ROOT / "docs" / "architecture.md")
    (block,) = (block for block in blocks if block.startswith("# smoothed.py"))
    (tmp_path / "smoothed.py").write_text(block, encoding="utf-8")
    corpus = write_corpus(tmp_path / "corpus")
    kind = ("--objective", "smoothed:Smoothed", "--data.pairing", "contiguous")
    for smoothing in ("0", "0.2"):
        flags = (*kind, "--objective.smoothing", smoothing, "--num-train-steps", "10")
        assert main(arguments(tmp_path / smoothing, corpus, *flags)) == 0
    plain, mixed = (read_rows(tmp_path / name / METRICS_FILE)[0] for name in ("0", "0.2"))
    assert plain["loss"] == plain["mlm_loss"]
    assert mixed["loss"] > mixed["mlm_loss"] > plain["mlm_loss"]


def test_every_page_has_a_title():
    """Its own, or that of a file which it takes in; a link to a file may become a text in a checkout."""
    for page in (ROOT / "docs").rglob("*.md"):
        first = page.read_text(encoding="utf-8").splitlines()[0]
        taken_in = re.fullmatch(r'--8<-- "([^":]+)"', first)
        first = (ROOT / taken_in[1]).read_text(encoding="utf-8").splitlines()[0] if taken_in else first
        assert first.startswith("# "), page


def test_links_of_the_readme_lead_to_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text) + re.findall(r"^\[.*\]: ([^\s#]+)", text, re.MULTILINE)
    targets = [link for link in links if not link.startswith("https://")]
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_files_that_the_documentation_names_exist():
    places = r"`((?:bert_jax|data_pipeline|experiments|tests|benchmarks)/[\w./-]*)`"
    named = {name for page in PAGES for name in re.findall(places, page.read_text(encoding="utf-8"))}
    assert len(named) > 50
    assert sorted(name for name in named if "NAME" not in name and not (ROOT / name).exists()) == []
