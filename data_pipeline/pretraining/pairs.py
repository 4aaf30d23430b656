"""Sequences from instances, drawn anew at each visit: where A ends, which text is B, what is truncated.

Everything is computed for a whole batch at once, from the tables of sentence and document starts and
16 random draws per example; only the tokens are copied row by row.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from data_pipeline.config import DataConfig
from data_pipeline.corpus.documents import Corpus
from data_pipeline.corpus.truncation import truncated_lengths
from data_pipeline.pretraining.instances import Instances

Ints = NDArray[np.int64]
Bits = NDArray[np.uint32]

# Columns of an example's random bits, 32 bits each. _CUT_A and _CUT_B are the first of four columns each.
_IS_SHORT, _TARGET, _FIRST_SENTENCE, _SPLIT, _IS_RANDOM, _OTHER_DOCUMENT, _OTHER_SENTENCE = range(7)
_CUT_A, _CUT_B = 8, 12
PAIR_DRAWS = 16


@dataclasses.dataclass(frozen=True)
class Spans:
    """The tokens of the corpus that the sequences of a batch are made of; all arrays are [b]."""

    a_start: Ints
    a_length: Ints
    b_start: Ints
    b_length: Ints
    """0 without a B."""
    label: NDArray[np.int32]
    """1: B comes from another document (google-research/bert, run_pretraining.py:285), or in the text stands
    before A."""
    is_short: NDArray[np.bool_]
    """Whether the sequence was drawn with a shorter target length."""
    is_forced: NDArray[np.bool_]
    """Whether the text has one sentence only, so that B has to be random."""

    @property
    def lengths(self) -> Ints:
        """Number of tokens in each sequence, special ones counted but for those between documents."""
        return self.a_length + 2 + np.where(self.b_length > 0, self.b_length + 1, 0)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Sequences of a batch before masking."""

    input_ids: NDArray[np.int32]
    """[b, T], padded."""
    second_starts: NDArray[np.int32]
    """[b], the column where segment 1 begins; equal to `ends` if there is no B."""
    ends: NDArray[np.int32]
    """[b], number of tokens, special ones counted."""
    labels: NDArray[np.int32]
    """[b]"""


def choose_spans(
    corpus: Corpus,
    instances: Instances,
    numbers: Ints,
    bits: Bits,
    data: DataConfig,
    max_seq_length: Ints | int,
) -> Spans:
    """Draws the sequences of the instances `numbers` [b], with `bits` [b, >= 16].

    `max_seq_length` [b], or one for all, is at least 5. If an instance was cut for longer sequences, only
    a part of it is used, which starts at a random sentence.

    Same as google-research/bert, create_pretraining_data.py:200-300, with two differences. A B that is
    labelled random always comes from another document: one of the *other* documents is drawn uniformly,
    whereas the original gives up after ten draws. And a random B leaves the rest of its instance unused in
    this visit, since the next visit draws anew; the original continues with that rest.

    In sentence order prediction (Lan et al. 2020, "ALBERT", arXiv 1909.11942, section 3.1) the text is cut in
    two like for a B that follows, and a coin swaps the two. A text of one sentence is cut between any two of
    its tokens; there, it gets a random B.
    """
    starts, limit = corpus.sentence_starts, max_seq_length - data.num_special_tokens
    first, last, target, is_short = _choose_text(corpus, instances, numbers, bits, data.short_seq_prob, limit)
    label = is_forced = np.zeros_like(is_short)
    if not data.has_pairs:
        a_start, a_stop = starts[first], starts[last]
        b_start = b_stop = np.zeros_like(a_start)
    elif data.pairing == "sentence_order":
        a, b, label = _in_either_order(starts, first, last, bits, data.random_next_prob)
        (a_start, a_stop), (b_start, b_stop) = a, b
    else:
        middle = first + 1 + _below(bits[:, _SPLIT], last - first - 1)
        is_forced = last - first == 1
        label = is_forced | _happens(bits[:, _IS_RANDOM], data.random_next_prob)
        a_start, a_stop = starts[first], starts[middle]
        other_first, other_last = _choose_other(corpus, first, target - (a_stop - a_start), bits)
        b_start = starts[np.where(label, other_first, middle)]
        b_stop = starts[np.where(label, other_last, last)]
    a_length, b_length = a_stop - a_start, b_stop - b_start
    a_kept, b_kept = truncated_lengths(a_length, b_length, limit)
    return Spans(
        a_start=a_start + count_heads(a_length - a_kept, bits[:, _CUT_A : _CUT_A + 4]),
        a_length=a_kept,
        b_start=b_start + count_heads(b_length - b_kept, bits[:, _CUT_B : _CUT_B + 4]),
        b_length=b_kept,
        label=label.astype(np.int32),
        is_short=is_short,
        is_forced=is_forced,
    )


def _choose_text(
    corpus: Corpus, instances: Instances, numbers: Ints, bits: Bits, short_prob: float, limit: Ints | int
) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """Returns each example's sentences [first, last), its target length in tokens, and if that is short."""
    first = instances.first_sentences[numbers].astype(np.int64)
    last = instances.first_sentences[numbers + 1].astype(np.int64)
    is_short = _happens(bits[:, _IS_SHORT], short_prob)
    target = np.where(is_short, 2 + _below(bits[:, _TARGET], np.int64(limit) - 1), limit)
    # An instance cut for this limit is shorter than it without its last sentence.
    is_part = is_short | (corpus.sentence_starts[last - 1] - corpus.sentence_starts[first] >= limit)
    part_first = first + _below(bits[:, _FIRST_SENTENCE], last - first)
    part_last = _reach(corpus, part_first, target, _documents(corpus, first))
    return np.where(is_part, part_first, first), np.where(is_part, part_last, last), target, is_short


def _choose_other(corpus: Corpus, first: Ints, tokens: Ints, bits: Bits) -> tuple[Ints, Ints]:
    """Draws another document uniformly, and a run of its sentences that begins at a random one.

    The run has at least `tokens` tokens, or ends with the document. Returns its sentences [first, last).
    """
    own = _documents(corpus, first)
    other = _below(bits[:, _OTHER_DOCUMENT], np.int64(len(corpus.document_starts) - 2))
    other += other >= own
    start, stop = corpus.document_starts[other], corpus.document_starts[other + 1]
    other_first = start + _below(bits[:, _OTHER_SENTENCE], stop - start)
    return other_first, _reach(corpus, other_first, np.maximum(tokens, 1), other)


def _in_either_order(
    sentence_starts: Ints, first: Ints, last: Ints, bits: Bits, swap_prob: float
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Two halves of the sentences [first, last), of which the second is A with probability `swap_prob`.

    Returns A and B, [2, b] each: the first token and the one after the last; and whether they are swapped.
    """
    start, stop = sentence_starts[first], sentence_starts[last]
    at_sentence = sentence_starts[first + 1 + _below(bits[:, _SPLIT], last - first - 1)]
    at_token = np.minimum(start + 1 + _below(bits[:, _SPLIT], stop - start - 1), stop)
    middle = np.where(last - first == 1, at_token, at_sentence)
    # A text of one token has nothing to swap.
    is_swapped = _happens(bits[:, _IS_RANDOM], swap_prob) & (middle < stop)
    halves = np.array([[start, middle], [middle, stop]])
    a, b = np.where(is_swapped, halves[::-1], halves)
    return a, b, is_swapped


def count_heads(flips: Ints, bits: Bits) -> Ints:
    """Number of heads in `flips` [b] tosses of a fair coin: how many tokens to cut from the front.

    Each toss is one of the 128 bits in `bits` [b, 4]; half of the tosses past the 128th are heads.
    """
    num_bits = 32 * bits.shape[1]
    counted = np.clip(flips[:, np.newaxis] - 32 * np.arange(bits.shape[1]), 0, 32).astype(np.uint64)
    kept = bits & ((np.uint64(1) << counted) - np.uint64(1))
    return np.bitwise_count(kept).sum(axis=1, dtype=np.int64) + np.maximum(flips - num_bits, 0) // 2


def write_sequences(corpus: Corpus, spans: Spans, max_seq_length: int) -> Sequences:
    """[CLS] A [SEP] B [SEP], or [CLS] A [SEP] where B is empty, padded to `max_seq_length`."""
    special = corpus.tokenizer
    ids = np.full((len(spans.label), max_seq_length), special.pad_id, np.int32)
    second_starts = spans.a_length + 2
    ends = spans.lengths
    rows = np.arange(len(ids))
    ids[:, 0] = special.cls_id
    ids[rows, second_starts - 1] = special.sep_id
    ids[rows, ends - 1] = special.sep_id
    copy_tokens(corpus, ids, np.ones_like(second_starts), spans.a_start, spans.a_length)
    copy_tokens(corpus, ids, second_starts, spans.b_start, spans.b_length)
    return Sequences(ids, second_starts.astype(np.int32), ends.astype(np.int32), spans.label)


def copy_tokens(
    corpus: Corpus, ids: Iterable[NDArray[np.int32]], columns: Ints, starts: Ints, lengths: Ints
) -> None:
    """Writes the tokens [starts, starts + lengths) of the corpus into the rows of `ids` from `columns` on."""
    # Same as Corpus.read, but looks up the shards of all rows at once. An empty B may start where the corpus
    # ends, which the last entry of `shard_starts` would put into no shard.
    shards = np.searchsorted(corpus.shard_starts[:-1], starts, side="right") - 1
    firsts = starts - corpus.shard_starts[shards]
    spans = zip(shards.tolist(), columns.tolist(), firsts.tolist(), lengths.tolist(), strict=True)
    for row, (shard, column, first, length) in zip(ids, spans, strict=True):
        row[column : column + length] = corpus.map_shard(shard).tokens[first : first + length]


def _documents(corpus: Corpus, sentences: Ints) -> Ints:
    return np.searchsorted(corpus.document_starts, sentences, side="right") - 1


def _reach(corpus: Corpus, first: Ints, tokens: Ints, documents: Ints) -> Ints:
    """The first sentence boundary at least `tokens` after the start of `first`, or the document's end."""
    reached = np.searchsorted(corpus.sentence_starts, corpus.sentence_starts[first] + tokens)
    return np.minimum(reached, corpus.document_starts[documents + 1])


def _below(bits: Bits, bound: Ints | np.int64) -> Ints:
    """Uniform integers from 0 to `bound` - 1 (0 for bound 0), off by at most bound / 2**32."""
    return ((bits.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def _happens(bits: Bits, probability: float) -> NDArray[np.bool_]:
    return bits < np.uint64(round(probability * 2**32))
