"""What must not be loaded where torch is installed beside this package."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.parity


def test_the_loop_leaves_torch_alone():
    program = "import sys, bert_jax.training.loop; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
