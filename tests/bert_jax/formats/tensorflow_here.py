"""TensorFlow's checkpoints in the process of the tests, which has TensorFlow already.

A process of its own, as commands start one, takes seconds to import it; `test_google_tf1.py` starts some.
"""

from pathlib import Path

import pytest

from bert_jax.formats import google_tf1
from data_pipeline.tf1_checkpoint import read_checkpoint, write_checkpoint


def use_tensorflow_here(patch: pytest.MonkeyPatch) -> None:
    """Makes `bert_jax` read and write TensorFlow's checkpoints without another process."""

    def run(action: str, prefix: Path, file: Path) -> None:
        {"read": read_checkpoint, "write": write_checkpoint}[action](str(prefix), file)

    patch.setattr(google_tf1, "_run_tensorflow", run)
