"""What a run learns: a module, its loss in sums, and what the sums mean.

The training step, the loop and the compiled programs know nothing else of it, so pretraining and
every kind of fine-tuning share them.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import flax.linen as nn
import jax

Batch = Mapping[str, jax.Array]
Sums = dict[str, jax.Array]
"""float32 scalars that parts of a batch may be added up by: devices, micro-batches, steps."""


class Task(Protocol):
    """A mean over a batch is a numerator over a denominator. Both are computed as sums, added over
    devices and micro-batches, and divided once; averaging the means of parts would be wrong
    whenever the parts have different numbers of predictions."""

    @property
    def module(self) -> nn.Module:
        """Called as `module.apply(variables, batch, deterministic, rngs=...)`; gives the outputs."""
        ...

    def example_batch(self) -> dict[str, jax.Array]:
        """The smallest batch there can be, to initialise the module with."""
        ...

    def denominators(self, batch: Batch) -> Sums:
        """What the numerators are divided by, among them `examples` and `tokens`, the real sequences
        and positions; needs the batch alone."""
        ...

    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        """Summed losses and numbers of right predictions of a part of a batch."""
        ...

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        """The share of the batch's loss that numerators of a part contribute, given the
        denominators of the whole."""
        ...

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Readable metrics, "loss" among them, from numerators and denominators on the host."""
        ...

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        """Factor of the learning rate for the parameter at a path; 0 freezes it."""
        ...

    def flops(self, batch: Batch) -> int:
        """Floating-point operations of training on a batch of this shape."""
        ...
