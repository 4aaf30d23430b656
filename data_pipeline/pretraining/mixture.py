"""Several corpora in one stream: which corpus the example at each position is of, and which of its examples.

Positions are cut into blocks of 1,000, in each of which a corpus has the same number of places. A permutation
of the block says where they lie. So the corpus at a position, and the number of the row among those of the
corpus, are known without looking at other positions, and each corpus goes through epochs of its own.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.pretraining.batch_contract import ArraySpec, batch_spec
from data_pipeline.pretraining.corpus_source import CorpusSource, Part, map_batches
from data_pipeline.pretraining.order import Source, evenly_spaced, shuffled_columns, shuffled_instances
from data_pipeline.pretraining.row_filling import NumpyBatch
from data_pipeline.tensorflow_cpu import tf

BLOCK = 1000

# A phase's stream is its number. Its corpora after the first are ordered, and its blocks permuted, in streams
# beyond, all below 2**32.
_STREAMS_OF_CORPUS = 2**16
_STREAM_OF_BLOCKS = 2**31

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class MixedSource(Source):
    """Instances of several corpora, in a fixed proportion; those of a row are of one corpus.

    They are numbered one corpus after the other.
    """

    sources: tuple[CorpusSource, ...]
    """For the same settings and phase."""
    weights: tuple[float, ...]
    """Fraction of the rows that is of each; they add up to 1."""

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def num_draws(self) -> int:
        return self.sources[0].num_draws

    @property
    def instances_per_row(self) -> int:
        return self.sources[0].instances_per_row

    @property
    def _arrays(self) -> dict[str, ArraySpec]:
        return batch_spec(self.sources[0].phase, self.instances_per_row)

    @property
    def _ends(self) -> Ints:
        return np.cumsum([len(source) for source in self.sources])

    def order(self, seed: int, stream: int, positions: tf.Tensor) -> tf.Tensor:
        shares = share_out(self.weights, BLOCK)
        corpora, visits = mix(seed, stream, positions, shares)
        numbers = tf.zeros([tf.size(positions), self.instances_per_row], tf.int64)
        first = 0
        for corpus, source in enumerate(self.sources):
            own_stream = stream + corpus * _STREAMS_OF_CORPUS
            is_own = corpora == corpus
            # A row of another corpus gets a visit near those of the batch, or else `shuffled_columns`
            # would make the keys of all epochs between them.
            near = positions // BLOCK * shares[corpus]
            own_visits = tf.where(is_own, visits, near)
            own = shuffled_columns(seed, own_stream, own_visits, len(source), self.instances_per_row)
            numbers = tf.where(is_own[:, tf.newaxis], first + own, numbers)
            first += len(source)
        return numbers

    def spread(self, examples: int) -> Ints:
        shares = share_out(self.weights, examples)
        firsts = [0, *self._ends[:-1]]
        parts = zip(firsts, self.sources, shares, strict=True)
        return np.concatenate(
            [first + evenly_spaced(len(source), int(share)) for first, source, share in parts]
        )

    def make_batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        return map_batches(examples, self.batch, self._arrays)

    def batch(self, numbers: np.ndarray, bits: np.ndarray, progress: float) -> NumpyBatch:
        arrays = self._arrays.items()
        batch = {key: np.empty((len(numbers), *array.shape), array.dtype) for key, array in arrays}
        for part in self.parts(numbers, bits, progress):
            for key, values in part.drawn.batch.items():
                batch[key][part.rows] = values
        return batch

    def parts(self, numbers: np.ndarray, bits: np.ndarray, progress: float) -> Iterator[Part]:
        """The rows of each corpus that has some; the arguments are those of `CorpusSource.draw`."""
        corpora = self._ends.searchsorted(numbers[:, 0], side="right")
        firsts = [0, *self._ends[:-1]]
        for corpus in np.unique(corpora):
            rows, source = np.flatnonzero(corpora == corpus), self.sources[corpus]
            yield Part(source, rows, source.draw(numbers[rows] - firsts[corpus], bits[rows], progress))

    def rows_before(self, seed: int, stream: int, position: int) -> Ints:
        """How many rows of each corpus are before a position of a stream: int64 [corpora]."""
        counts = share_out(self.weights, BLOCK)
        block, begun = divmod(position, BLOCK)
        positions = tf.range(block * BLOCK, (block + 1) * BLOCK, dtype=tf.int64)
        corpora = mix(seed, stream, positions, counts)[0].numpy()[:begun]
        return block * counts + np.bincount(corpora, minlength=len(counts))


def mix(seed: int, stream: int, positions: tf.Tensor, counts: Ints) -> tuple[tf.Tensor, tf.Tensor]:
    """The corpus at each of the int64 `positions` [n], and the number of the row among those of the corpus.

    Both are int64 [n]. `counts` [corpora] are the places of each corpus in a block, `BLOCK` in all. Inside a
    block the numbers go on after the block before it, but not in the order of the positions.
    """
    slots = shuffled_instances(seed, _STREAM_OF_BLOCKS + stream, positions, BLOCK)
    ends = np.cumsum(counts)
    corpora = tf.searchsorted(tf.constant(ends), slots, side="right", out_type=tf.int64)
    count, end = tf.gather(counts, corpora), tf.gather(ends, corpora)
    return corpora, positions // BLOCK * count + slots - (end - count)


def share_out(weights: Sequence[float], total: int) -> Ints:
    """Whole numbers in the proportion of `weights` that add up to `total`, by the largest remainders."""
    exact = np.array(weights) / sum(weights) * total
    shares = np.floor(exact).astype(np.int64)
    largest = np.argsort(shares - exact, kind="stable")
    shares[largest[: total - shares.sum()]] += 1
    return shares
