"""Rows: a data set after tokenizing, before padding. Every task makes them; batches are made from them."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FEATURES = "features"
"""Per-token activations of a frozen encoder, which are computed once: [T_i, L, D] for L layers."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Token sequences of different lengths, and the targets to predict from them.

    A row is one unit of training: a text, a window of a passage, a question with its choices. It has
    `sequences_per_row` sequences; those of row r begin at number r * sequences_per_row. An empty sequence
    stands for a choice that a row does not have; it is never the first.
    """

    tokens: Mapping[str, Sequence[np.ndarray]]
    """`input_ids`, `segment_ids` and per-token targets such as `tag_ids`: one int32 [T_i] array for each
    sequence, of the same length for all names; and perhaps `FEATURES`. `input_ids` begin with [CLS] and end
    with [SEP]."""
    targets: Mapping[str, np.ndarray]
    """Per-row targets such as `labels` int32 [R] or `values` float32 [R]; empty for texts to predict. Targets
    whose names end in `_positions` are columns of the row, and are shifted with it where rows share lines."""
    example: np.ndarray
    """int32 [R]: the example that each row was cut from; examples with windows have several rows."""
    sequences_per_row: int = 1
    num_cut: int = 0
    """Number of sequences, or of questions in front of windows, that were too long and lost tokens."""

    def fingerprint(self, *more: Any) -> str:
        """A hash of all ids and targets, and of `more`, which is hashed as JSON."""
        total = hashlib.sha256()
        for name, sequences in sorted(self.tokens.items()):
            total.update(f"{name} {[len(ids) for ids in sequences]}".encode())
            total.update(np.concatenate(sequences).tobytes())
        for name, values in sorted(self.targets.items()):
            total.update(name.encode() + values.tobytes())
        if more:
            total.update(json.dumps(more, default=dataclasses.asdict).encode())
        return total.hexdigest()

    @property
    def highest_id(self) -> int:
        """The largest of all token ids; 0 if there are no tokens."""
        return max((int(ids.max(initial=0)) for ids in self.tokens["input_ids"]), default=0)

    def sequence_lengths(self) -> np.ndarray:
        """int64 [R, sequences_per_row]: the number of tokens of each sequence."""
        lengths = np.array([len(ids) for ids in self.tokens["input_ids"]], np.int64)
        return lengths.reshape(len(self), self.sequences_per_row)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.example)
