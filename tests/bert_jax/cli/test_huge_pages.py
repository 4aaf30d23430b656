"""Commands that compute for long ask the C library for huge pages."""

import os
import subprocess
import sys

import pytest

PRINTS = """
import os
from bert_jax.cli import main
main.main = lambda: print(os.environ.get("GLIBC_TUNABLES"))
main.entry_point()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        ("pretrain", {}, "glibc.malloc.hugetlb=1"),
        ("pretrain", {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, "glibc.malloc.arena_max=1"),
        ("report", {}, "None"),
    ],
)
def test_a_process_gets_them_unless_the_user_has_set_others(
    command: str, given: dict[str, str], expected: str
) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    shown = subprocess.check_output([sys.executable, "-c", PRINTS, command], env=inherited | given, text=True)
    assert shown == f"{expected}\n"
