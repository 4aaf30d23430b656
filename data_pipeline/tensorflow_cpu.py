"""TensorFlow for the input pipeline alone: imported quietly, without Keras, and kept off every accelerator.

Some of its start-up messages ignore TF_CPP_MIN_LOG_LEVEL, so stderr goes to /dev/null during the import.
Keras, which nothing here uses, would be a third of the import's time: TensorFlow loads it at once, except
where it is told to use Keras 2 and that isn't installed. `tf.keras` still works; it is then loaded by its
first use. A TensorFlow that saw a GPU would take all of its memory and leave none for jax.
"""

import contextlib
import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


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


@contextlib.contextmanager
def _without_keras() -> Iterator[None]:
    if _LEGACY_KERAS in os.environ:
        yield
        return
    os.environ[_LEGACY_KERAS] = "1"
    try:
        yield
    finally:
        del os.environ[_LEGACY_KERAS]


with _quiet_stderr(), _without_keras():
    import tensorflow as tf

    # RuntimeError: other code has initialised TensorFlow already, and so has made this choice.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")

__all__ = ["tf"]
