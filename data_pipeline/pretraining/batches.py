"""Batches of a run: step -> examples -> pairs -> masks, as a few small dataset -> dataset functions.

A batch is a function of (corpus, settings, seed, step) and nothing else: not of the number of
processes or threads, nor of where a run was interrupted. The batch of any step can be made directly,
without those before it.
"""

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np

from data_pipeline.config import DataConfig, Phase, Stretch
from data_pipeline.corpus.store import Mixture, Store, open_store
from data_pipeline.errors import UserError
from data_pipeline.pretraining.corpus_source import check_documents, make_corpus_source
from data_pipeline.pretraining.mixture import MixedSource
from data_pipeline.pretraining.order import Source, random_bits
from data_pipeline.pretraining.row_filling import NumpyBatch
from data_pipeline.pretraining.tfrecords import Records, check_settings, check_shapes, parse_records
from data_pipeline.tensorflow_cpu import tf

RowRanges: TypeAlias = tuple[tuple[int, int], ...]
"""Rows of a batch as half-open ranges in ascending order, such as ((0, 4), (8, 12))."""

# Evaluation has a fixed seed, so that runs with different seeds are comparable. Training phases use
# streams 0, 1, ...
EVALUATION_SEED, EVALUATION_STREAM = 0, 2**32 - 1


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _without_autograph(build: _Function) -> _Function:
    """tf.data then traces the functions that `build` gives it as they are.

    None of them branches on a tensor, and for AutoGraph to rewrite their source would take a second or two
    of every start.
    """
    return tf.autograph.experimental.do_not_convert(build)


@_without_autograph
def training_batches(
    corpus_dir: str,
    data: DataConfig,
    *,
    seed: int,
    global_batch_size: int,
    num_train_steps: int,
    first_step: int,
    rows: Callable[[int], RowRanges] | None = None,
    num_threads: int = 0,
) -> Iterator[NumpyBatch]:
    """Yields the batches, or some of their rows, of steps first_step, ..., num_train_steps - 1.

    Args:
      corpus_dir: a directory made by `bert-jax prepare`, or a directory or glob of TFRecords; or several
        directories, with commas between them, for which `data.weights` has a weight each.
      seed: from 0 to 2**32 - 1.
      rows: size of a batch -> the rows of it to make; None: all. Each process of a run makes only the rows
        that its devices hold.
      num_threads: size of tf.data's thread pool; 0 lets tf.data choose.

    Returns:
      dicts of input_ids, input_mask, segment_ids int32 [b, T]; masked_lm_positions, masked_lm_ids int32
      [b, P]; masked_lm_weights float32 [b, P]; next_sentence_labels int32 [b]. T and P are the phase's.
      With data.max_instances_per_row K above 1: next_sentence_labels int32 [b, K], and instance_starts
      int32 [b, K], the column of each instance's [CLS]; both are 0 after a row's last instance.

    Raises:
      UserError: from this call, not from the first batch, if the corpus or the settings can't give batches.
    """
    store = open_store(corpus_dir, "train", data.weights)
    datasets = []
    sources: dict[Phase, Source] = {}
    for stretch in data.stretches(num_train_steps, global_batch_size):
        if max(first_step, stretch.start) < stretch.stop:
            if stretch.phase not in sources:
                sources[stretch.phase] = make_source(store, data, stretch.phase)
            source = sources[stretch.phase]
            steps = tf.data.Dataset.range(max(first_step, stretch.start), stretch.stop)
            held = rows(stretch.batch_size) if rows else ((0, stretch.batch_size),)
            examples = _place(steps, stretch, source, held, seed, num_train_steps)
            datasets.append(_iterate(_run_ahead(source.make_batches(examples), num_threads), source))
    return itertools.chain.from_iterable(datasets)


@_without_autograph
def evaluation_batches(
    corpus_dir: str,
    data: DataConfig,
    phase: Phase,
    *,
    batch_size: int,
    examples: int,
    rows: RowRanges | None = None,
) -> Iterator[NumpyBatch]:
    """Yields at most `examples` held-out examples, evenly spaced over the split, always with the same masks.

    Each has a row to itself, so that runs with and without packing are comparable. The last batch is padded
    with rows of zeros, which have no weight in any metric. Keys, shapes and dtypes are as in
    `training_batches`; `rows` are those of each batch to make, None for all. Raises UserError, from this
    call, if nothing is held out or it can't give examples.
    """
    data = dataclasses.replace(data, max_instances_per_row=1)
    source = make_source(open_store(corpus_dir, "heldout", data.weights), data, phase)
    numbers = source.spread(examples)
    firsts = tf.data.Dataset.range(0, len(numbers), batch_size)
    rows = rows or ((0, batch_size),)
    size = sum(stop - start for start, stop in rows)
    batches = source.make_batches(_number(firsts, source, rows, numbers))
    batches = batches.map(lambda batch: _fill_up(batch, size))
    return _iterate(_run_ahead(batches, 0), source)


def check_store(store: Store, data: DataConfig) -> None:
    """Raises UserError if a store can't give examples with these settings, whatever the phase."""
    if isinstance(store, Records):
        check_settings(store, data)
        return
    for corpus in store.corpora if isinstance(store, Mixture) else (store,):
        check_documents(corpus, data)


def make_source(store: Store, data: DataConfig, phase: Phase) -> Source:
    """Returns the instances of a store. Raises UserError if it can't give examples for the phase."""
    check_store(store, data)
    if isinstance(store, Records):
        check_shapes(store, phase)
        return RecordSource(store, phase)
    if isinstance(store, Mixture):
        sources = tuple(make_corpus_source(corpus, data, phase) for corpus in store.corpora)
        return MixedSource(sources, store.weights)
    return make_corpus_source(store, data, phase)


@dataclasses.dataclass(frozen=True, eq=False)
class RecordSource(Source):
    """Examples of TFRecords, used as they are stored: the same pairs and masks at every visit."""

    records: Records
    phase: Phase
    num_draws: int = 4
    """Unused; 4 draws, one count of the generator, are the fewest that `random_bits` makes."""
    instances_per_row: int = 1

    def __len__(self) -> int:
        return len(self.records)

    def make_batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        records, phase = weakref.proxy(self.records), self.phase

        def read(numbers: np.ndarray) -> np.ndarray:
            return records.read(numbers)

        def parse(numbers: tf.Tensor, _: Any, __: Any) -> dict[str, tf.Tensor]:
            return parse_records(tf.numpy_function(read, [numbers[:, 0]], tf.string, stateful=False), phase)

        return examples.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _place(
    steps: tf.data.Dataset,
    stretch: Stretch,
    source: Source,
    rows: RowRanges,
    seed: int,
    num_train_steps: int,
) -> tf.data.Dataset:
    """Steps -> what `make_batches` takes: instances in shuffled order, random bits, and progress."""

    def place(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        first = stretch.rows_before(step)
        ranges = [(first + start, first + stop) for start, stop in rows]
        positions, bits = _positions_and_bits(ranges, source, seed, stretch.number)
        progress = tf.cast(step, tf.float64) / num_train_steps
        return source.order(seed, stretch.number, positions), bits, progress

    return steps.map(place, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _number(firsts: tf.data.Dataset, source: Source, rows: RowRanges, numbers: np.ndarray) -> tf.data.Dataset:
    """First positions of batches -> what `make_batches` takes, as at the end of a run.

    The instances are the `numbers` [m] at the batches' positions below m.
    """

    def number(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ends = [tf.minimum(first + tf.constant(pair, tf.int64), len(numbers)) for pair in rows]
        ranges = [(pair[0], pair[1]) for pair in ends]
        positions, bits = _positions_and_bits(ranges, source, EVALUATION_SEED, EVALUATION_STREAM)
        return tf.gather(numbers, positions)[:, tf.newaxis], bits, tf.constant(1, tf.float64)

    return firsts.map(number)


def _positions_and_bits(
    ranges: list[tuple[tf.Tensor, tf.Tensor]], source: Source, seed: int, stream: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the positions in half-open ranges, int64 [n], range by range, and the random bits of each."""
    positions = [tf.range(start, stop) for start, stop in ranges]
    bits = [random_bits(seed, stream, start, stop - start, source.num_draws) for start, stop in ranges]
    return tf.concat(positions, axis=0), tf.concat(bits, axis=0)


def _fill_up(batch: dict[str, tf.Tensor], size: int) -> dict[str, tf.Tensor]:
    def fill(values: tf.Tensor) -> tf.Tensor:
        missing = size - tf.shape(values)[0]
        return tf.pad(values, [[0, missing]] + [[0, 0]] * (len(values.shape) - 1))

    return {key: fill(values) for key, values in batch.items()}


def _iterate(dataset: tf.data.Dataset, source: Source) -> Iterator[NumpyBatch]:
    """Yields the batches of a dataset, and keeps its source alive only while they are iterated over.

    Raises UserError if a TFRecord has other shapes than the first one of its file.
    """
    try:
        yield from dataset.as_numpy_iterator()
    except tf.errors.InvalidArgumentError as error:
        if not isinstance(source, RecordSource):
            raise
        raise UserError(
            f"a record of {source.records.paths[0].parent} has other shapes than the first one of its file "
            f"({error.message.splitlines()[0][:120]}); make all records with the same lengths"
        ) from None


def _run_ahead(dataset: tf.data.Dataset, num_threads: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = num_threads
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
