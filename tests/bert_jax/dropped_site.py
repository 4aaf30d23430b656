"""Dropout that, at one of its uses in a model, drops everything, and nothing at the others."""

import contextlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from bert_jax.model import attention, dropout


@contextlib.contextmanager
def all_dropped_at(site: jax.typing.ArrayLike) -> Iterator[list[float]]:
    """Gives the rates of the uses that have come so far; `site` is the number of one of them, from 0."""
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
