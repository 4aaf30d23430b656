"""What a program on eight devices computed, and whether it is what one device computes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).parents[2]


def run_on_eight_devices(module: str, output: Path) -> dict[str, np.ndarray]:
    """The arrays that a module of this folder writes; a process of its own settles the number of devices."""
    program = [sys.executable, "-m", f"tests.bert_jax.{module}", str(output)]
    # No other process has use for what it compiles, and to store it takes a sixth of the time.
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(program, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(np.load(output))


def assert_equal(results: dict[str, np.ndarray], mode: str, part: str, tolerance: float = 2e-6) -> None:
    """Asserts that a mode's arrays equal those of one device, up to the order in which floats are added."""
    expected = {n: x for n, x in results.items() if n.startswith(f"one_device/{part}/")}
    assert expected
    for name, array in expected.items():
        ours = results[name.replace("one_device", mode, 1)]
        np.testing.assert_allclose(ours, array, atol=tolerance, rtol=tolerance, err_msg=name)
