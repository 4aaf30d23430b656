"""Every objective and encoder learns the same however a step is spread over devices, and resumes exactly."""

import numpy as np
import pytest

from tests.bert_jax.encoders import MODES_OF_CASES, RESUMED_CASES
from tests.bert_jax.results_on_devices import assert_equal, run_on_eight_devices


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What `objectives_on_eight_devices` computed."""
    output = tmp_path_factory.mktemp("parallel") / "results.npz"
    return run_on_eight_devices("objectives_on_eight_devices", output)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "objective", "encoder"), [case for case in MODES_OF_CASES if case[0] != "one_device"]
)
def test_a_step_equals_that_of_one_device(
    results: dict[str, np.ndarray], mode: str, objective: str, encoder: str
) -> None:
    # Muon makes the smallest parts of a gradient as large as the others, and their rounding with them.
    assert_equal(results, mode, f"{objective}/{encoder}/params", tolerance=2e-5)
    assert_equal(results, mode, f"{objective}/{encoder}/sums", tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "objective", "encoder"), RESUMED_CASES)
def test_a_resumed_step_is_identical(
    results: dict[str, np.ndarray], mode: str, objective: str, encoder: str
) -> None:
    assert results[f"{mode}/{objective}/{encoder}/resumed"]
