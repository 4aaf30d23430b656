"""Which checkpoints of a run stay."""

import dataclasses

from bert_jax.config import RunConfig


@dataclasses.dataclass(frozen=True)
class Kept:
    """Which checkpoints of a run stay."""

    newest: int = 0
    """So many of the newest; 0 in a file that is older than this field."""
    every: tuple[int, ...] = ()
    """Those of the steps that one of these divides."""

    @classmethod
    def asked_for_by(cls, run: RunConfig) -> "Kept":
        """What the settings of one start ask for."""
        return cls(run.keep_checkpoints, () if run.keep_every is None else (run.keep_every,))

    def union(self, other: "Kept") -> "Kept":
        """Whatever one of the two keeps."""
        return Kept(max(self.newest, other.newest), tuple(sorted({*self.every, *other.every})))
