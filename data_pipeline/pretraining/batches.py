"""Batches of a run: step -> examples -> pairs -> masks, as a few small dataset -> dataset functions.

A batch is a function of (corpus, settings, seed, step) and nothing else: not of the number of
processes or threads, nor of where a run was interrupted. The batch of any step can be made directly,
without those before it.
"""

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.documents import Corpus
from data_pipeline.corpus.store import Store, open_store
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batch_contract import batch_spec
from data_pipeline.pretraining.full_sentences import cut_full_sentences, write_full_sentences
from data_pipeline.pretraining.instances import Instances, cut_instances
from data_pipeline.pretraining.masking import mask_sequences, num_mask_draws, prediction_counts, share_draws
from data_pipeline.pretraining.order import draws_per_example, random_bits, shuffled_columns
from data_pipeline.pretraining.pairs import NUM_SPECIAL_TOKENS, PAIR_DRAWS, Sequences, Spans, write_sequences
from data_pipeline.pretraining.row_filling import Places, fill_rows, join_rows
from data_pipeline.pretraining.tfrecords import Records, check_settings, check_shapes, parse_records
from data_pipeline.tensorflow_cpu import tf

NumpyBatch = dict[str, np.ndarray]

RowRanges: TypeAlias = tuple[tuple[int, int], ...]
"""Rows of a batch as half-open ranges in ascending order, such as ((0, 4), (8, 12))."""

# Evaluation has a fixed seed, so that runs with different seeds are comparable. Training phases use
# streams 0, 1, ...
EVALUATION_SEED, EVALUATION_STREAM = 0, 2**32 - 1


class Source(Protocol):
    """Instances by number, for rows of one length."""

    @property
    def num_draws(self) -> int:
        """Number of 32-bit random draws needed for one row."""

    @property
    def instances_per_row(self) -> int:
        """Number of instance numbers needed for one row."""

    def __len__(self) -> int: ...

    def make_batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        """(numbers int64 [b, instances_per_row], bits uint32 [b, num_draws], progress float64 []) -> keys of
        `batch_spec`; the last is the fraction of the run that was done before the batch.

        The dataset does not keep the source alive: TensorFlow never releases a Python function that it was
        given, so a function that held a corpus would keep it mapped until the process ends.
        """


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
      corpus_dir: a directory made by `bert-jax prepare`, or a directory or glob of TFRecords.
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
    store = open_store(corpus_dir, "train")
    datasets = []
    for stretch in data.stretches(num_train_steps, global_batch_size):
        if max(first_step, stretch.start) < stretch.stop:
            source = make_source(store, data, stretch.phase)
            steps = tf.data.Dataset.range(max(first_step, stretch.start), stretch.stop)
            held = rows(stretch.batch_size) if rows else ((0, stretch.batch_size),)
            placed = _place(steps.map(stretch.rows_before), source, held, seed, stretch.number)
            examples = _with_progress(placed, steps, num_train_steps)
            datasets.append(_iterate(_run_ahead(source.make_batches(examples), num_threads), source))
    return itertools.chain.from_iterable(datasets)


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
    source = make_source(open_store(corpus_dir, "heldout"), data, phase)
    wanted = min(examples, len(source))
    firsts = tf.data.Dataset.range(0, wanted, batch_size)
    rows = rows or ((0, batch_size),)
    size = sum(stop - start for start, stop in rows)
    placed = _spread(firsts, source, rows, wanted)
    at_the_end = placed.map(lambda numbers, bits: (numbers, bits, tf.constant(1, tf.float64)))
    batches = source.make_batches(at_the_end).map(lambda batch: _fill_up(batch, size))
    return _iterate(_run_ahead(batches, 0), source)


def make_source(store: Store, data: DataConfig, phase: Phase) -> Source:
    """Returns the instances of a store. Raises UserError if it can't give examples for the phase."""
    if isinstance(store, Records):
        check_shapes(store, phase)
        check_settings(store, data)
        return RecordSource(store, phase)
    return make_corpus_source(store, data, phase)


def make_corpus_source(corpus: Corpus, data: DataConfig, phase: Phase) -> "CorpusSource":
    """Returns the instances of a corpus. Raises UserError if it can't give examples for the phase."""
    if data.pairing == "next_sentence" and corpus.num_documents < 2:
        remedy = (
            "prepare more documents, or train without NSP: --objective mlm --data.pairing contiguous"
            if corpus.split == "train"
            else "prepare it with a larger --holdout, or with --holdout 0"
        )
        raise UserError(
            f"the {corpus.split} split of {corpus.directory} has {corpus.num_documents} document(s); "
            f"data.pairing next_sentence needs 2 or more, for a random B; {remedy}"
        )
    target = phase.max_seq_length - NUM_SPECIAL_TOKENS[data.pairing]
    cut = cut_full_sentences if data.pairing == "full_sentences" else cut_instances
    instances = cut(corpus.sentence_starts, corpus.document_starts, target)
    if not len(instances):
        raise UserError(f"the {corpus.split} split of {corpus.directory} is empty; it gives no example")
    return CorpusSource(corpus, instances, data, phase)


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """A batch and what it was made from: n instances in b rows."""

    spans: Spans
    """[n]"""
    places: Places
    """[n]"""
    sequences: Sequences
    """[n], the text of each instance before masking, from column 0 on."""
    batch: NumpyBatch
    """The keys of `batch_spec`, [b]."""


@dataclasses.dataclass(frozen=True, eq=False)
class CorpusSource:
    """Instances of a prepared corpus; pairs and masks are drawn anew at each visit."""

    corpus: Corpus
    instances: Instances
    data: DataConfig
    phase: Phase

    def __len__(self) -> int:
        return len(self.instances)

    @property
    def instances_per_row(self) -> int:
        return self.data.max_instances_per_row

    @property
    def num_draws(self) -> int:
        mask_draws = num_mask_draws(self.phase, self.data.masking.unit)
        return draws_per_example(self.instances_per_row * PAIR_DRAWS + mask_draws)

    def make_batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        arrays = batch_spec(self.phase, self.instances_per_row)
        types = [tf.as_dtype(array.dtype) for array in arrays.values()]
        source = weakref.proxy(self)

        def make(numbers: np.ndarray, bits: np.ndarray, progress: np.ndarray) -> list[np.ndarray]:
            batch = source.draw(numbers, bits, float(progress)).batch
            return [batch[key] for key in arrays]

        def make_batch(numbers: tf.Tensor, bits: tf.Tensor, progress: tf.Tensor) -> dict[str, tf.Tensor]:
            values = tf.numpy_function(make, [numbers, bits, progress], types, stateful=False)
            for value, array in zip(values, arrays.values(), strict=True):
                value.set_shape([None, *array.shape])
            return dict(zip(arrays, values, strict=True))

        return examples.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def draw(self, numbers: np.ndarray, bits: np.ndarray, progress: float = 1.0) -> Drawn:
        """Makes the rows of the instances `numbers` [b, instances_per_row] from `bits` [b, num_draws].

        Args:
          numbers: int64.
          bits: uint32.
          progress: fraction of the run that was done before, on which the masking rate may depend.
        """
        masking = self.data.masking.at(progress)
        length, limit = self.phase.max_seq_length, self.instances_per_row
        spans, places = fill_rows(self.corpus, self.instances, numbers, bits, self.data, length)
        write = write_full_sentences if self.data.pairing == "full_sentences" else write_sequences
        sequences = write(self.corpus, spans, length)
        bits = bits[places.rows, limit * PAIR_DRAWS :]
        if limit == 1:
            return Drawn(spans, places, sequences, self._mask(sequences, bits, masking, None))
        text_tokens = spans.a_length + spans.b_length
        slots_before = places.before(prediction_counts(sequences.ends, text_tokens, masking.rate))
        bits = share_draws(bits, places.starts, slots_before, self.phase, masking.unit)
        room = np.maximum(self.phase.max_predictions_per_seq - slots_before, 0)
        return Drawn(
            spans, places, sequences, join_rows(self._mask(sequences, bits, masking, room), places, limit)
        )

    def _mask(
        self, sequences: Sequences, bits: np.ndarray, masking: MaskingConfig, room: np.ndarray | None
    ) -> NumpyBatch:
        """Returns the keys of an unpacked batch, a row for each instance."""
        columns = np.arange(self.phase.max_seq_length, dtype=np.int32)
        is_token = columns < sequences.ends[:, np.newaxis]
        is_second = is_token & (columns >= sequences.second_starts[:, np.newaxis])
        masked = mask_sequences(
            sequences,
            bits,
            masking,
            self.phase.max_predictions_per_seq,
            self.corpus.tokenizer.continues_word,
            self.corpus.tokenizer.mask_id,
            room=room,
        )
        return {
            **masked,
            "input_mask": is_token.astype(np.int32),
            "segment_ids": is_second.astype(np.int32),
            "next_sentence_labels": sequences.labels,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class RecordSource:
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
    firsts: tf.data.Dataset, source: Source, rows: RowRanges, seed: int, stream: int
) -> tf.data.Dataset:
    """First positions of batches -> numbers of their instances, in shuffled order, and random bits."""

    def place(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        positions, bits = _positions_and_bits(
            [(first + start, first + stop) for start, stop in rows], source, seed, stream
        )
        return shuffled_columns(seed, stream, positions, len(source), source.instances_per_row), bits

    return firsts.map(place, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _with_progress(placed: tf.data.Dataset, steps: tf.data.Dataset, num_train_steps: int) -> tf.data.Dataset:
    """Adds to each element the fraction of the run that is done before it, float64 []."""
    done = steps.map(lambda step: tf.cast(step, tf.float64) / num_train_steps)
    return tf.data.Dataset.zip((placed, done)).map(lambda examples, progress: (*examples, progress))


def _spread(firsts: tf.data.Dataset, source: Source, rows: RowRanges, wanted: int) -> tf.data.Dataset:
    """First positions of batches -> numbers and bits of every (len / wanted)-th example."""

    def spread(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ends = [tf.minimum(first + tf.constant(pair, tf.int64), wanted) for pair in rows]
        ranges = [(pair[0], pair[1]) for pair in ends]
        positions, bits = _positions_and_bits(ranges, source, EVALUATION_SEED, EVALUATION_STREAM)
        return (positions * len(source) // wanted)[:, tf.newaxis], bits

    return firsts.map(spread)


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
    """Yields the batches of a dataset, and keeps its source alive only while they are iterated over."""
    yield from dataset.as_numpy_iterator()
    del source  # the dataset has only a weak reference; this frame held the strong one


def _run_ahead(dataset: tf.data.Dataset, num_threads: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = num_threads
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
