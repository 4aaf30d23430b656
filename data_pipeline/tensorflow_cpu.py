"""TensorFlow for the input pipeline alone: imported quietly, and kept off every accelerator.

Some of its start-up messages ignore TF_CPP_MIN_LOG_LEVEL, so stderr goes to /dev/null during the import.
A TensorFlow that saw a GPU would take all of its memory and leave none for jax.
"""

import contextlib
import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


with _quiet_stderr():
    import tensorflow as tf

    # RuntimeError: other code has initialised TensorFlow already, and so has made this choice.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")

__all__ = ["tf"]
