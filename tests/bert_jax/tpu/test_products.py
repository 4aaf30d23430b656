"""The benchmark of matrix products finds those of a step, and prices them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.base import BASE

pytestmark = pytest.mark.tpu


def test_the_products_of_two_layers_of_base() -> None:
    rows, phase, model = 2, BASE.data.phases[0], BASE.model
    done = subprocess.run(
        [sys.executable, "benchmarks/tpu_products.py", "--layers=2", f"--batch={rows}"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tokens, predicted = rows * phase.max_seq_length, rows * phase.max_predictions_per_seq
    width = model.hidden_size
    projection, feed_forward = width * width, 2 * width * model.intermediate_size
    # The last layer has keys and values of all tokens, all else at [CLS] and where something is predicted.
    whole_layer = tokens * (4 * projection + feed_forward)
    last_layer = tokens * 2 * projection + (predicted + rows) * (2 * projection + feed_forward)
    heads = predicted * (projection + width * model.vocab_size) + rows * (projection + 2 * width)
    # A product costs 2 operations, and its gradients twice as many.
    operations = 6 * (whole_layer + last_layer + heads)
    assert sum(row["times"] * row["flops"] for row in found["products"]) == operations
    assert found["cycles"] == sum(row["times"] * row["cycles"] for row in found["products"])
    assert all(0 <= row["fraction_of_peak"] < 1 for row in found["products"])
