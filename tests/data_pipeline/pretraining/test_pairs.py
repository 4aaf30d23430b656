"""Pairs: closed forms against literal loops, and what choose_spans promises about documents."""

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.config import DataConfig
from data_pipeline.corpus.documents import open_corpus
from data_pipeline.pretraining.instances import cut_documents, cut_instances
from data_pipeline.pretraining.pairs import (
    PAIR_DRAWS,
    choose_spans,
    count_heads,
    write_sequences,
)
from tests.data_pipeline.small_corpus import count_bounds, write_corpus

LENGTH = 64
VISITS = 20_000
PAPER = DataConfig()


@settings(max_examples=200, deadline=None)
@given(flips=st.integers(0, 400), bits=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4))
def test_heads_are_counted_bit_by_bit(flips, bits):
    coins = [draw >> bit & 1 for draw in bits for bit in range(32)]
    expected = sum(coins[:flips]) + max(flips - 128, 0) // 2
    assert count_heads(np.array([flips]), np.array([bits], np.uint32)).tolist() == [expected]


@functools.cache
def visit(corpus, data: DataConfig = PAPER, max_seq_length: int = LENGTH, seed: int = 0):
    """Instances, the numbers of those visited, and their spans."""
    target = max_seq_length - data.num_special_tokens
    instances = cut_instances(corpus.sentence_starts, corpus.document_starts, target, cut_documents)
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, len(instances), VISITS)
    bits = rng.integers(0, 2**32, (VISITS, PAIR_DRAWS), np.uint32)
    return instances, numbers, choose_spans(corpus, instances, numbers, bits, data, max_seq_length)


def bits_of_visit(instances) -> np.ndarray:
    """The bits that `visit` drew."""
    rng = np.random.default_rng(0)
    rng.integers(0, len(instances), VISITS)
    return rng.integers(0, 2**32, (VISITS, PAIR_DRAWS), np.uint32)


def documents_of(corpus, positions: np.ndarray) -> np.ndarray:
    document_tokens = corpus.sentence_starts[corpus.document_starts]
    return np.searchsorted(document_tokens, positions, side="right") - 1


def test_label_tells_whether_b_is_of_another_document(corpus):
    _, _, spans = visit(corpus)
    a, b = documents_of(corpus, spans.a_start), documents_of(corpus, spans.b_start)
    np.testing.assert_array_equal(spans.label, a != b)


def test_spans_stay_inside_their_documents(corpus):
    _, _, spans = visit(corpus)
    for start, length in ((spans.a_start, spans.a_length), (spans.b_start, spans.b_length)):
        assert (length > 0).all()
        np.testing.assert_array_equal(documents_of(corpus, start), documents_of(corpus, start + length - 1))


def test_b_that_follows_begins_where_a_ends_but_for_what_was_cut(corpus):
    _, _, spans = visit(corpus, max_seq_length=512)
    follows = (spans.label == 0) & (spans.a_length + spans.b_length < 509)
    assert follows.sum() > 1000
    np.testing.assert_array_equal((spans.a_start + spans.a_length)[follows], spans.b_start[follows])


def test_pairs_begin_and_split_at_sentences_when_nothing_is_cut(corpus):
    _, _, spans = visit(corpus, max_seq_length=512)
    uncut = spans.a_length + spans.b_length < 509
    starts = np.concatenate([spans.a_start[uncut], spans.b_start[uncut]])
    assert np.isin(starts, corpus.sentence_starts).all()


def test_long_sequences_are_cut_to_exactly_the_limit(corpus):
    _, _, spans = visit(corpus)
    total = spans.a_length + spans.b_length
    assert total.max() == LENGTH - 3


def test_of_an_instance_that_is_too_long_a_part_is_taken_from_any_sentence_on(corpus):
    data = DataConfig(pairing="contiguous", short_seq_prob=0.0)
    instances, numbers, _ = visit(corpus, data)
    bits = np.random.default_rng(1).integers(0, 2**32, (VISITS, PAIR_DRAWS), np.uint32)
    limits = np.where(np.arange(VISITS) % 2, LENGTH, 24)
    spans = choose_spans(corpus, instances, numbers, bits, data, limits)
    assert spans.lengths[::2].max() == 24
    assert spans.lengths[1::2].max() == LENGTH
    last_sentence = corpus.sentence_starts[instances.first_sentences[numbers + 1].astype(int) - 1]
    text = last_sentence - corpus.sentence_starts[instances.first_sentences[numbers]]
    is_long = text > 40
    is_from_last = spans.a_start >= last_sentence
    assert is_from_last[::2][is_long[::2]].mean() > 0.1
    assert not is_from_last[1::2][is_long[1::2]].any()


def test_share_of_random_b_is_as_promised(corpus):
    _, _, spans = visit(corpus, DataConfig(random_next_prob=0.3))
    assert (spans.label[spans.is_forced] == 1).all()
    free = spans.label[~spans.is_forced]
    low, high = count_bounds(len(free), 0.3)
    assert low < free.sum() < high


def test_forced_pairs_are_those_of_one_sentence(corpus):
    instances, numbers, spans = visit(corpus, DataConfig(short_seq_prob=0.0))
    sentences = np.diff(instances.first_sentences.astype(int))[numbers]
    np.testing.assert_array_equal(spans.is_forced, sentences == 1)


def test_other_documents_are_drawn_evenly(corpus):
    _, _, spans = visit(corpus)
    random = spans.label == 1
    own, other = documents_of(corpus, spans.a_start[random]), documents_of(corpus, spans.b_start[random])
    counts = np.bincount((other - own) % corpus.num_documents, minlength=corpus.num_documents)
    assert counts[0] == 0
    low, high = count_bounds(int(random.sum()), 1 / (corpus.num_documents - 1))
    assert (counts[1:] > low).all()
    assert (counts[1:] < high).all()


@pytest.mark.parametrize("pairing", ["next_sentence", "sentence_order", "contiguous"])
def test_share_of_short_sequences_is_as_promised(corpus, pairing):
    _, _, spans = visit(corpus, DataConfig(pairing=pairing, short_seq_prob=0.25))
    low, high = count_bounds(VISITS, 0.25)
    assert low < spans.is_short.sum() < high
    lengths = spans.a_length + spans.b_length
    assert lengths[spans.is_short].mean() < 0.8 * lengths[~spans.is_short].mean()


def test_short_sequences_go_on_to_the_first_boundary_that_reaches_the_target(corpus):
    data = DataConfig(pairing="contiguous", short_seq_prob=1.0)
    instances, _, spans = visit(corpus, data, max_seq_length=512)
    targets = 2 + (bits_of_visit(instances)[:, 1].astype(int) * 509 >> 32)
    ends = corpus.sentence_starts[corpus.document_starts][documents_of(corpus, spans.a_start) + 1]
    for start, length, target, end in zip(
        spans.a_start[:2000], spans.a_length[:2000], targets[:2000], ends[:2000], strict=True
    ):
        boundaries = corpus.sentence_starts[corpus.sentence_starts > start]
        reached = next((b for b in boundaries if b >= min(start + target, end)), end)
        assert length == min(reached - start, 510)


def test_cut_tokens_go_from_front_and_back_alike(corpus):
    data = DataConfig(pairing="contiguous", short_seq_prob=0.0)
    instances, numbers, spans = visit(corpus, data)
    first = corpus.sentence_starts[instances.first_sentences.astype(int)]
    cut = np.diff(first)[numbers] - spans.a_length
    front = spans.a_start - first[:-1][numbers]
    assert ((front >= 0) & (front <= cut)).all()
    low, high = count_bounds(int(cut.sum()), 0.5)
    assert low < front.sum() < high


def test_contiguous_sequences_have_no_b_and_no_label(corpus):
    _, _, spans = visit(corpus, DataConfig(pairing="contiguous"))
    assert not spans.b_length.any()
    assert not spans.label.any()
    assert spans.a_length.max() == LENGTH - 2


@pytest.mark.parametrize("pairing", ["next_sentence", "sentence_order", "contiguous"])
def test_rows_are_laid_out_as_the_paper_says(corpus, pairing):
    _, _, spans = visit(corpus, DataConfig(pairing=pairing))
    few = dataclasses.replace(
        spans, **{f.name: getattr(spans, f.name)[:300] for f in dataclasses.fields(spans)}
    )
    rows = write_sequences(corpus, few, LENGTH)
    t = corpus.tokenizer
    for row in range(300):
        a = corpus.read(few.a_start[row], few.a_start[row] + few.a_length[row]).tolist()
        b = corpus.read(few.b_start[row], few.b_start[row] + few.b_length[row]).tolist()
        expected = [t.cls_id, *a, t.sep_id, *([*b, t.sep_id] if b else [])]
        assert rows.input_ids[row].tolist() == expected + [t.pad_id] * (LENGTH - len(expected))
        assert rows.second_starts[row] == len(a) + 2
        assert rows.ends[row] == len(expected)


def test_same_bits_same_spans_whatever_the_batch(corpus):
    instances, numbers, spans = visit(corpus)
    bits = bits_of_visit(instances)[7:19]
    part = choose_spans(corpus, instances, numbers[7:19], bits, DataConfig(), LENGTH)
    for field in dataclasses.fields(spans):
        np.testing.assert_array_equal(getattr(part, field.name), getattr(spans, field.name)[7:19])


def test_random_b_goes_on_to_the_first_boundary_that_fills_up_the_target(corpus):
    data = DataConfig(short_seq_prob=1.0, random_next_prob=1.0)
    instances, _, spans = visit(corpus, data, max_seq_length=512)
    targets = 2 + (bits_of_visit(instances)[:, 1].astype(int) * 508 >> 32)
    ends = corpus.sentence_starts[corpus.document_starts][documents_of(corpus, spans.b_start) + 1]
    stops = spans.b_start + spans.b_length
    missing = np.maximum(targets - spans.a_length, 1)
    uncut = spans.a_length + spans.b_length < 509
    assert uncut[:2000].mean() > 0.5
    for row in np.flatnonzero(uncut[:2000]):
        reached = min(spans.b_start[row] + missing[row], ends[row])
        assert stops[row] == corpus.sentence_starts[corpus.sentence_starts.searchsorted(reached)]


def assert_even(places: np.ndarray, choices: np.ndarray) -> None:
    """Asserts that `places` [n] are drawn uniformly from 0 to `choices` [n] - 1."""
    assert ((places >= 0) & (places < choices)).all()
    middles = (places + 0.5) / choices - 0.5
    spread = np.sqrt(((1 - 1 / choices**2) / 12).sum())
    assert abs(middles.sum()) < 5 * spread


def test_a_ends_at_any_sentence_but_the_last(corpus):
    data = DataConfig(short_seq_prob=0.0, random_next_prob=0.0)
    instances, numbers, spans = visit(corpus, data, max_seq_length=512)
    first, last = (instances.first_sentences.astype(int)[numbers + i] for i in (0, 1))
    whole = (spans.a_length + spans.b_length < 509) & ~spans.is_forced
    stops = corpus.sentence_starts.searchsorted((spans.a_start + spans.a_length)[whole])
    assert_even(stops - first[whole] - 1, (last - first - 1)[whole])


def test_short_sequences_begin_at_any_sentence_of_their_instance(corpus):
    data = DataConfig(pairing="contiguous", short_seq_prob=1.0)
    instances, numbers, spans = visit(corpus, data, max_seq_length=512)
    first, last = (instances.first_sentences.astype(int)[numbers + i] for i in (0, 1))
    whole = spans.a_length < 510
    begun = corpus.sentence_starts.searchsorted(spans.a_start[whole])
    assert_even(begun - first[whole], (last - first)[whole])


def test_random_b_begins_at_any_sentence_of_its_document(corpus):
    data = DataConfig(short_seq_prob=1.0, random_next_prob=1.0)
    _, _, spans = visit(corpus, data, max_seq_length=512)
    whole = spans.a_length + spans.b_length < 509
    start = spans.b_start[whole]
    document = documents_of(corpus, start)
    first, stop = corpus.document_starts[document], corpus.document_starts[document + 1]
    place = corpus.sentence_starts.searchsorted(start) - first
    assert_even(place, stop - first)
    correlation = np.corrcoef(document, (place + 0.5) / (stop - first))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(whole.sum())


def test_a_and_b_are_cut_by_bits_of_their_own(corpus):
    instances, numbers, spans = visit(corpus)
    for first, moved, kept in ((8, "a_start", "b_start"), (12, "b_start", "a_start")):
        bits = bits_of_visit(instances)
        bits[:, first : first + 4] ^= np.uint32(2**32 - 1)
        changed = choose_spans(corpus, instances, numbers, bits, PAPER, LENGTH)
        assert (getattr(changed, moved) != getattr(spans, moved)).any()
        np.testing.assert_array_equal(getattr(changed, kept), getattr(spans, kept))


def test_sentences_in_order_are_one_text_cut_in_two(corpus):
    instances, numbers, spans = visit(corpus, DataConfig(pairing="sentence_order"), max_seq_length=512)
    a_stop, b_stop = spans.a_start + spans.a_length, spans.b_start + spans.b_length
    uncut = spans.a_length + spans.b_length < 509
    assert uncut.mean() > 0.5
    is_swapped = spans.label == 1
    np.testing.assert_array_equal(
        np.where(is_swapped, b_stop, a_stop)[uncut], np.where(is_swapped, spans.a_start, spans.b_start)[uncut]
    )
    first, last = (instances.first_sentences.astype(int)[numbers + i] for i in (0, 1))
    middle = np.where(is_swapped, spans.a_start, spans.b_start)
    several = uncut & (last - first > 1) & ~spans.is_short
    assert np.isin(middle[several], corpus.sentence_starts).all()
    assert_even(
        corpus.sentence_starts.searchsorted(middle[several]) - first[several] - 1,
        (last - first - 1)[several],
    )


def test_a_single_sentence_is_cut_at_any_of_its_tokens(tmp_path):
    corpus = open_corpus(write_corpus(tmp_path, [[[list(range(5, 5 + n))] for n in (2, 9, 20)]]), "train")
    data = DataConfig(pairing="sentence_order", short_seq_prob=0.0)
    _, _, spans = visit(corpus, data)
    total = spans.a_length + spans.b_length
    assert set(total) == {2, 9, 20}
    assert not spans.is_forced.any()
    assert_even(np.where(spans.label == 1, spans.b_length, spans.a_length) - 1, total - 1)


def test_share_of_swapped_pairs_is_as_promised(corpus):
    _, _, spans = visit(corpus, DataConfig(pairing="sentence_order", random_next_prob=0.3))
    low, high = count_bounds(VISITS, 0.3)
    assert low < spans.label.sum() < high
    halves = (start[spans.b_length > 0] for start in (spans.a_start, spans.b_start))
    np.testing.assert_array_equal(*(documents_of(corpus, starts) for starts in halves))


def test_a_text_of_one_token_has_nothing_to_swap(tmp_path):
    corpus = open_corpus(write_corpus(tmp_path, [[[[7]], [[8]]]]), "train")
    instances = cut_instances(corpus.sentence_starts, corpus.document_starts, 13, cut_documents)
    bits = np.random.default_rng(0).integers(0, 2**32, (20, PAIR_DRAWS), np.uint32)
    data = DataConfig(pairing="sentence_order", random_next_prob=1.0)
    spans = choose_spans(corpus, instances, np.arange(20) % 2, bits, data, 16)
    assert (spans.a_length == 1).all()
    assert not spans.b_length.any()
    assert not spans.label.any()
    sequences = write_sequences(corpus, spans, 16)  # also of the second text, with which the corpus ends
    assert sequences.input_ids[:2, 1].tolist() == [7, 8]
    assert (sequences.ends == 3).all()
