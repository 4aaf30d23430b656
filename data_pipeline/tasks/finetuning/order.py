"""Which rows each training step has: a function of (number of rows, seed, step)."""

import functools

import numpy as np


def rows_of_step(num_rows: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """int64 [B]: the rows of a training step."""
    epochs, places = np.divmod(np.arange(step * batch_size, (step + 1) * batch_size), num_rows)
    return np.concatenate([_order(num_rows, seed, int(e))[places[epochs == e]] for e in np.unique(epochs)])


@functools.lru_cache(maxsize=4)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    """int64 [R]: the rows in the order of an epoch.

    Sorting raw bits, since numpy promises the same raw bits for ever but not the same `permutation`.
    """
    bits = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(num_rows)
    order = np.argsort(bits, kind="stable")
    order.flags.writeable = False
    return order
