"""Packing: the space that an instance leaves in its row is filled with further instances.

A further instance is drawn and masked like one with a row to itself, for a sequence as long as the space
that is left. So nothing has to be sorted or remembered: a row is a function of its position in the run,
just as without packing.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from data_pipeline.config import DataConfig
from data_pipeline.corpus.documents import Corpus
from data_pipeline.pretraining.batch_contract import COLUMN_KEYS, SLOT_KEYS
from data_pipeline.pretraining.instances import Instances
from data_pipeline.pretraining.pairs import PAIR_DRAWS, Spans, choose_spans

Ints = NDArray[np.int64]
Bits = NDArray[np.uint32]
NumpyBatch = dict[str, np.ndarray]

# Space below a sixteenth of a row stays empty: it would hold scraps of text, each with as much weight in
# next sentence prediction as any other instance. A pair takes at least 5 tokens.
_SMALLEST_SHARE, _SMALLEST = 16, 5


@dataclasses.dataclass(frozen=True)
class Places:
    """Places of the n instances of a batch in its rows; all arrays are [n], first instances of rows first."""

    rows: Ints
    starts: Ints
    """The column of [CLS]."""
    numbers: Ints
    """Number of each instance within its row, from 0."""

    def before(self, counts: Ints) -> Ints:
        """The sum of `counts` [n] over the instances before each one in its row: [n]."""
        table = np.zeros((self.rows.max() + 1, self.numbers.max() + 1), np.int64)
        table[self.rows, self.numbers] = counts
        return (np.cumsum(table, axis=1) - table)[self.rows, self.numbers]


def fill_rows(
    corpus: Corpus, instances: Instances, numbers: Ints, bits: Bits, data: DataConfig, max_seq_length: int
) -> tuple[Spans, Places]:
    """Fills b rows with n instances: each row takes its `numbers` [b, K] in order until its space runs out.

    Args:
      bits: [b, K * 16 or more].
    """
    smallest = max(_SMALLEST, max_seq_length // _SMALLEST_SHARE)
    room = np.full(len(numbers), max_seq_length, np.int64)
    drawn, places = [], []
    for number, column in enumerate(numbers.T):
        rows = np.flatnonzero(room >= smallest)
        own_bits = bits[rows, number * PAIR_DRAWS : (number + 1) * PAIR_DRAWS]
        spans = choose_spans(corpus, instances, column[rows], own_bits, data, room[rows])
        drawn.append(spans)
        places.append(Places(rows, max_seq_length - room[rows], np.full_like(rows, number)))
        room[rows] -= spans.lengths
    return _concatenate(drawn), _concatenate(places)


def join_rows(batch: NumpyBatch, places: Places, max_instances: int) -> NumpyBatch:
    """Joins a batch with a row for each of n instances into the rows that they share.

    The keys stay the same, except that `next_sentence_labels` becomes [b, K] and `instance_starts` is new:
    int32 [b, K], the column of each instance's [CLS]. Both are 0 after a row's last instance.
    """
    is_token, is_used = batch["input_mask"] > 0, batch["masked_lm_weights"] > 0
    first_slots = places.before(is_used.sum(axis=1))
    positions = batch["masked_lm_positions"] + places.starts[:, np.newaxis].astype(np.int32)
    slots = {**batch, "masked_lm_positions": positions}
    moved = {key: _move(batch[key], is_token, places.rows, places.starts) for key in COLUMN_KEYS}
    moved |= {key: _move(slots[key], is_used, places.rows, first_slots) for key in SLOT_KEYS}
    labels, starts = np.zeros((2, int(places.rows.max()) + 1, max_instances), np.int32)
    labels[places.rows, places.numbers] = batch["next_sentence_labels"]
    starts[places.rows, places.numbers] = places.starts
    return {**moved, "next_sentence_labels": labels, "instance_starts": starts}


def _move(values: np.ndarray, is_used: NDArray[np.bool_], rows: Ints, columns: Ints) -> np.ndarray:
    """Moves the used entries of `values` [n, C] into `rows` [n], from `columns` [n] on."""
    # The first instance of each row stays in place, and so does the padding behind it.
    first = int(rows.max()) + 1
    moved = values[:first].copy()
    instance, column = np.nonzero(is_used[first:])
    instance += first
    moved[rows[instance], columns[instance] + column] = values[instance, column]
    return moved


def _concatenate(parts):  # type: ignore[no-untyped-def]
    """Concatenates several dataclasses of arrays into one."""
    names = [field.name for field in dataclasses.fields(parts[0])]
    return type(parts[0])(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
