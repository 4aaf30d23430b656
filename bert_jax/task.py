"""What a run learns: a module, its loss in sums, and what the sums mean.

The training step, the loop and the compiled programs know nothing else about a task, so pretraining
and every kind of fine-tuning share them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import flax.linen as nn
    import jax

    Batch: TypeAlias = Mapping[str, jax.Array]
    Sums: TypeAlias = dict[str, jax.Array]
    """float32 scalars that are added up over devices, micro-batches and steps."""
else:  # settings are read, and help is printed, without jax
    Batch, Sums = Mapping, dict


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number by which models are judged: its name in rows of metrics, and how it is shown."""

    name: str
    """Its key in a row of `metrics.jsonl`, such as `mlm_accuracy`."""
    label: str
    """What people call it, such as "MLM accuracy"."""
    form: str = "{:.4g}"
    """Format of its value."""
    better: Literal["higher", "lower"] = "higher"
    """Which direction is better."""
    in_percent: bool = False
    """Whether the value is in percent; a fraction, say, is not."""

    guess: str = ""
    """What always guessing means for it, such as "the most frequent token"; empty if nothing."""
    panel: str = ""
    """Title of the panel of a plot in which it is drawn, beside like metrics of other tasks; empty: it is
    not drawn."""

    def rank(self, value: float | None) -> float:
        """A number that is higher for better values, and lowest for NaN and None."""
        if value is None or math.isnan(value):
            return -math.inf
        return value if self.better == "higher" else -value

    @property
    def guess_name(self) -> str:
        """Key of the score of always guessing the most frequent label, such as `mlm_guess_accuracy`."""
        prefix, _, kind = self.name.rpartition("_")
        return f"{prefix}_guess_{kind}"

    @property
    def scale(self) -> int:
        """100 if it is shown as a percentage, else 1."""
        return 100 if self.form.endswith("%}") else 1

    def show(self, mean: float, deviation: float | None = None) -> str:
        """The value as text, with its standard deviation over repeats if there is one."""
        if deviation is None:
            return self.form.format(mean)
        if self.scale == 100:
            return f"{100 * mean:.1f} ± {100 * deviation:.1f}%"
        return f"{self.form.format(mean)} ± {deviation:.2g}"


def only_guesses(metrics: Iterable[Metric], row: Mapping[str, float]) -> bool:
    """Whether a held-out row is not clearly better at predicting tokens than always guessing is.

    Clearly: by more than 5% of what guessing gets wrong. The first metric with a guess decides, which is that
    of tokens: models that predict these no better than guessing may still tell pairs of segments apart. False
    if there is no guess to compare with.
    """
    scores = ((row[metric.name], row[metric.guess_name]) for metric in metrics if metric.guess_name in row)
    return any(score - guess <= 0.05 * (1 - guess) for score, guess in itertools.islice(scores, 1))


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

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that are shown, in this order, where a row has them."""
        ...

    def learning_rate_scale(self, path: tuple[str, ...]) -> float:
        """Factor on the learning rate of the parameter at a path; 0 freezes it."""
        ...

    def flops(self, batch: Batch) -> int:
        """Floating-point operations of training on a batch of this shape."""
        ...
