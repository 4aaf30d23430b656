"""The model against Hugging Face's, live: outputs and the gradients of one step."""

import numpy as np
import pytest

from tests.bert_jax.reference_check import differences
from tests.golden.make_model_golden import CASES, GOLDEN, make_batch, make_weights, reference

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_agree(case: str) -> None:
    weights, batch = make_weights(), make_batch()
    apart = differences(case, weights, batch, reference(case, weights, batch))
    assert {name: d for name, d in apart.items() if not d < 1e-5} == {}


@pytest.mark.parametrize("case", CASES)
def test_stored_numbers_are_what_the_program_computes(case: str) -> None:
    stored = np.load(GOLDEN)
    for name, value in reference(case, make_weights(), make_batch()).items():
        np.testing.assert_allclose(stored[f"{case}/{name}"], value, atol=1e-5, err_msg=name)
