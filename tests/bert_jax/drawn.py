"""Parameters drawn by numpy: compiling a module's own initialization takes longer than a tiny step of it."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.tasks.finetuning.head import Head

_SAME = {"scale": 1.0, "bias": 0.0}


def draw_params(shapes: Mapping[str, Any], deviation: float = 0.3) -> dict:
    """Parameters of these shapes, of a scale that a few dozen steps can learn from."""
    random = np.random.default_rng(5)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = path[-1].key
        array = np.full(leaf.shape, _SAME[name]) if name in _SAME else random.normal(0, deviation, leaf.shape)
        return array.astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def normal_params(shapes: Mapping[str, Any], seed: int, mean: float, deviation: float) -> dict:
    """Parameters of these shapes, all of the same distribution, biases included."""
    random = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: random.normal(mean, deviation, leaf.shape).astype(np.float32), dict(shapes)
    )


def draw_head(head: Head, deviation: float = 0.5) -> dict:
    """Parameters of a head and its encoder."""
    return draw_params(head.abstract_params(), deviation)
