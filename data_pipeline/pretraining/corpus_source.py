"""Instances of a prepared corpus, and the rows that are drawn from them: pairs, then masks."""

import dataclasses
import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.documents import Corpus
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batch_contract import ArraySpec, batch_spec
from data_pipeline.pretraining.full_sentences import cut_full_sentences, write_full_sentences
from data_pipeline.pretraining.instances import Instances, cut_documents, cut_instances
from data_pipeline.pretraining.masking import mask_sequences, num_mask_draws, prediction_counts, share_draws
from data_pipeline.pretraining.order import Source, draws_per_example
from data_pipeline.pretraining.pairs import PAIR_DRAWS, Sequences, Spans, write_sequences
from data_pipeline.pretraining.row_filling import NumpyBatch, Places, fill_rows, join_rows
from data_pipeline.tensorflow_cpu import tf


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


class Part(NamedTuple):
    """The rows of a batch that are of one corpus."""

    source: "CorpusSource"
    rows: np.ndarray
    """Their places in the batch."""
    drawn: Drawn


@dataclasses.dataclass(frozen=True, eq=False)
class CorpusSource(Source):
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
        length, slots = self.phase.max_seq_length, self.phase.max_predictions_per_seq
        mask_draws = num_mask_draws(length, slots, self.data.masking.unit)
        return draws_per_example(self.instances_per_row * PAIR_DRAWS + mask_draws)

    def make_batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        return map_batches(examples, self.batch, batch_spec(self.phase, self.instances_per_row))

    def batch(self, numbers: np.ndarray, bits: np.ndarray, progress: float) -> NumpyBatch:
        """The keys of `batch_spec`; the arguments are those of `draw`."""
        return self.draw(numbers, bits, progress).batch

    def parts(self, numbers: np.ndarray, bits: np.ndarray, progress: float) -> Iterator[Part]:
        """All rows; see `MixedSource.parts`."""
        yield Part(self, np.arange(len(numbers)), self.draw(numbers, bits, progress))

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
        masked = self._mask(sequences, bits, masking, room)
        return Drawn(spans, places, sequences, join_rows(masked, places, limit))

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


def check_documents(corpus: Corpus, data: DataConfig) -> None:
    """Raises UserError if a corpus has too few documents for the pairs that the settings want."""
    if data.pairing == "next_sentence" and corpus.num_documents < 2:
        remedy = (
            "prepare more documents, or train without NSP, as quickstart does (objective mlm, data.pairing "
            "contiguous)"
            if corpus.split == "train"
            else "prepare it with a larger --holdout, or with --holdout 0"
        )
        raise UserError(
            f"the {corpus.split} split of {corpus.directory} has {corpus.num_documents} document(s); "
            f"data.pairing next_sentence needs 2 or more, for a random B; {remedy}"
        )


def make_corpus_source(corpus: Corpus, data: DataConfig, phase: Phase) -> CorpusSource:
    """Returns the instances of a corpus. Raises UserError if it can't give examples for the phase."""
    check_documents(corpus, data)
    target = phase.max_seq_length - data.num_special_tokens
    cut_block = cut_full_sentences if data.pairing == "full_sentences" else cut_documents
    instances = cut_instances(corpus.sentence_starts, corpus.document_starts, target, cut_block)
    if not len(instances):
        raise UserError(f"the {corpus.split} split of {corpus.directory} is empty; it gives no example")
    return CorpusSource(corpus, instances, data, phase)


def map_batches(
    examples: tf.data.Dataset,
    batch: Callable[[np.ndarray, np.ndarray, float], NumpyBatch],
    arrays: dict[str, ArraySpec],
) -> tf.data.Dataset:
    """`Source.make_batches` of a source whose method `batch` makes these arrays."""
    types = [tf.as_dtype(array.dtype) for array in arrays.values()]
    method = weakref.WeakMethod(batch)

    def make(numbers: np.ndarray, bits: np.ndarray, progress: np.ndarray) -> list[np.ndarray]:
        batch = method()
        assert batch is not None, "whoever iterates over the batches keeps their source"
        made = batch(numbers, bits, float(progress))
        return [made[key] for key in arrays]

    def make_batch(numbers: tf.Tensor, bits: tf.Tensor, progress: tf.Tensor) -> dict[str, tf.Tensor]:
        values = tf.numpy_function(make, [numbers, bits, progress], types, stateful=False)
        for value, array in zip(values, arrays.values(), strict=True):
            value.set_shape([None, *array.shape])
        return dict(zip(arrays, values, strict=True))

    return examples.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
