"""Replaces dropout by one that drops everything at one of its sites in a model and nothing elsewhere."""

import contextlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from bert_jax.model import attention, dropout


@contextlib.contextmanager
def all_dropped_at(site: jax.typing.ArrayLike) -> Iterator[list[float]]:
    """Drops everything at dropout site number `site`, counted from 0 in the order of calls.

    Yields the list of the rates of all sites called so far.
    """
    rates: list[float] = []

    def drop(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
        if key is None:
            return x
        rates.append(rate)
        return jnp.where(len(rates) - 1 == site, 0, x).astype(x.dtype)

    with pytest.MonkeyPatch.context() as patch:
        for module in (dropout, attention):
            patch.setattr(module, "dropout", drop)
        yield rates
