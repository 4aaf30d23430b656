"""What a run learns: a module, its loss in sums, and what the sums mean.

The training step, the loop and the compiled programs know nothing else about a task, so pretraining
and every kind of fine-tuning share them.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import flax.linen as nn
import jax

Batch = Mapping[str, jax.Array]
Sums = dict[str, jax.Array]
"""float32 scalars that are added up over devices, micro-batches and steps."""


class Task(Protocol):
    """A mean over a batch is a numerator over a denominator. Both are computed as sums, added over
    devices and micro-batches, and divided once; averaging the means of parts would be wrong
    whenever the parts have different numbers of predictions."""

    @property
    def module(self) -> nn.Module:
        """Called as `module.apply(variables, batch, deterministic, rngs=...)`; gives the outputs."""
        ...

    def example_batch(self) -> dict[str, jax.Array]:
        """The smallest valid batch, to initialise the module with."""
        ...

    def denominators(self, batch: Batch) -> Sums:
        """What the numerators are divided by, from the batch alone; among them `examples` and `tokens`,
        the numbers of real sequences and positions."""
        ...

    def numerators(self, outputs: Any, batch: Batch) -> Sums:
        """Summed losses and numbers of correct predictions for a part of a batch."""
        ...

    def loss(self, sums: Sums, totals: Sums) -> jax.Array:
        """What a part of a batch contributes to the batch's loss: numerators of the part (`sums`) over
        denominators of the whole batch (`totals`)."""
        ...

    def means(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Readable metrics, "loss" among them, from numerators and denominators on the host."""
        ...

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        """Factor on the learning rate of the parameter at a path; 0 freezes it."""
        ...

    def flops(self, batch: Batch) -> int:
        """Floating-point operations of training on a batch of this shape."""
        ...
