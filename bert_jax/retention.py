"""Which checkpoints of a run stay."""

import dataclasses
from collections.abc import Iterable

from bert_jax.config import RunConfig


@dataclasses.dataclass(frozen=True)
class Kept:
    """Which checkpoints of a run stay."""

    newest: int = 1
    """So many of the newest."""
    every: tuple[int, ...] = ()
    """Also those whose step is a multiple of one of these, however old."""

    def __post_init__(self) -> None:
        for number in (self.newest, *self.every):
            if number < 1:
                raise ValueError(f"checkpoints to keep: {number}; it must be at least 1")

    @classmethod
    def asked_for_by(cls, run: RunConfig) -> "Kept":
        """What the settings of one start ask for."""
        return cls(run.keep_checkpoints, () if run.keep_every is None else (run.keep_every,))

    def union(self, other: "Kept") -> "Kept":
        """Whatever one of the two keeps."""
        return Kept(max(self.newest, other.newest), tuple(sorted({*self.every, *other.every})))

    def in_series(self, step: int) -> bool:
        """Whether `every` keeps the checkpoint of a step, however old."""
        return any(step % steps == 0 for steps in self.every)

    def of(self, steps: Iterable[int]) -> list[int]:
        """Which of these steps' checkpoints stay, oldest first."""
        steps = sorted(steps)
        return [step for step in steps if step in steps[-self.newest :] or self.in_series(step)]
