"""Masks: counts, places and replacements against the definitions; words and spans against literal loops."""

import dataclasses
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.config import MaskingConfig, MaskingUnit
from data_pipeline.pretraining.masking import mask_sequences, num_mask_draws
from data_pipeline.pretraining.pairs import Sequences
from tests.data_pipeline.small_corpus import count_bounds
from tests.data_pipeline.unmasked import unmasked_ids

LENGTH, SLOTS, VOCABULARY, MASK = 32, 6, 50, 4
CONTINUES = np.arange(VOCABULARY) % 3 == 2
PAPER = MaskingConfig()
UNITS = typing.get_args(MaskingUnit)


@dataclasses.dataclass(frozen=True)
class Text:
    ids: np.ndarray
    second_starts: np.ndarray
    ends: np.ndarray

    @property
    def is_text(self) -> np.ndarray:
        columns = np.arange(self.ids.shape[1])
        special = (
            (columns == 0)
            | (columns == self.second_starts[:, None] - 1)
            | (columns == self.ends[:, None] - 1)
        )
        return (columns < self.ends[:, None]) & ~special


def make_text(rows: int, seed: int = 0, length: int = LENGTH) -> Text:
    rng = np.random.default_rng(seed)
    ends = rng.integers(5, length + 1, rows)
    second_starts = rng.integers(3, ends - 1)
    ids = rng.integers(5, VOCABULARY, (rows, length))
    ids[:, 0] = 2
    ids[np.arange(rows), second_starts - 1] = ids[np.arange(rows), ends - 1] = 3
    ids[np.arange(length) >= ends[:, None]] = 0
    return Text(ids.astype(np.int32), second_starts.astype(np.int32), ends.astype(np.int32))


def make_bits(
    rows: int, slots: int = SLOTS, seed: int = 0, length: int = LENGTH, unit: MaskingUnit = "token"
) -> np.ndarray:
    num_draws = num_mask_draws(length, slots, unit)
    return np.random.default_rng(seed + 1000).integers(0, 2**32, (rows, num_draws), np.uint32)


def mask(text: Text, bits: np.ndarray, masking=PAPER, slots: int = SLOTS) -> dict[str, np.ndarray]:
    sequences = Sequences(text.ids, text.second_starts, text.ends, np.zeros(len(text.ids), np.int32))
    return mask_sequences(sequences, bits, masking, slots, CONTINUES, MASK)


def chosen(batch: dict[str, np.ndarray]) -> np.ndarray:
    """bool [b, T]"""
    flags = np.zeros(batch["input_ids"].shape, bool)
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    flags[rows, batch["masked_lm_positions"][rows, slots]] = True
    return flags


@pytest.mark.parametrize("length", [LENGTH, 43])
@pytest.mark.parametrize("unit", UNITS)
def test_only_text_is_ever_chosen_or_changed(unit, length):
    text = make_text(3000, length=length)
    batch = mask(text, make_bits(3000, length=length, unit=unit), MaskingConfig(rate=0.3, unit=unit))
    assert chosen(batch).sum() == batch["masked_lm_weights"].sum()
    assert not (chosen(batch) & ~text.is_text).any()
    np.testing.assert_array_equal(batch["input_ids"][~chosen(batch)], text.ids[~chosen(batch)])


@pytest.mark.parametrize("unit", UNITS)
def test_labels_restore_the_text(unit):
    text = make_text(3000)
    batch = mask(text, make_bits(3000, unit=unit), MaskingConfig(unit=unit))
    np.testing.assert_array_equal(unmasked_ids(batch), text.ids)


@pytest.mark.parametrize("unit", UNITS)
def test_no_rows_are_no_masks(unit):
    """A process has none of the last batch of an evaluation if that is small."""
    batch = mask(make_text(0), make_bits(0, unit=unit), MaskingConfig(unit=unit))
    assert batch["input_ids"].shape == (0, LENGTH)
    assert batch["masked_lm_weights"].shape == (0, SLOTS)


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 0.95])
def test_number_of_predictions_is_that_of_the_definition(rate):
    text = make_text(2000)
    batch = mask(text, make_bits(2000), MaskingConfig(rate=rate))
    for row, end in enumerate(text.ends.tolist()):
        expected = min(SLOTS, max(1, round(end * rate)), int(text.is_text[row].sum()))
        assert batch["masked_lm_weights"][row].sum() == expected


def test_positions_ascend_and_unused_slots_are_zero():
    batch = mask(make_text(2000), make_bits(2000))
    used = batch["masked_lm_weights"] == 1
    assert (np.diff(used.astype(int), axis=1) <= 0).all()
    rising = np.diff(batch["masked_lm_positions"], axis=1) > 0
    assert rising[used[:, 1:]].all()
    for key in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        assert not batch[key][~used].any()


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.1), (0.0, 0.2, 0.8), (0.7, 0.3, 0.0), (1.0, 0.0, 0.0)])
def test_shares_of_mask_same_and_random_are_as_promised(shares):
    text = make_text(8000)
    batch = mask(text, make_bits(8000), MaskingConfig(mask=shares[0], same=shares[1], random=shares[2]))
    was, now = text.ids[chosen(batch)], batch["input_ids"][chosen(batch)]
    chance = shares[2] / VOCABULARY  # a random id may be the one that was there, or [MASK]
    for hits, share in ((now == MASK, shares[0] + chance), (now == was, shares[1] + chance)):
        low, high = count_bounds(len(was), share)
        assert low <= hits.sum() <= high


def test_random_ids_are_even_over_the_whole_vocabulary():
    batch = mask(make_text(20_000), make_bits(20_000), MaskingConfig(mask=0.0, same=0.0, random=1.0))
    now = batch["input_ids"][chosen(batch)]
    low, high = count_bounds(len(now), 1 / VOCABULARY)
    counts = np.bincount(now, minlength=VOCABULARY)
    assert (low < counts.min()) & (counts.max() < high)
    assert len(counts) == VOCABULARY


def test_every_place_is_chosen_alike():
    rows = 20_000
    text = make_text(1)
    text = Text(*(np.repeat(a, rows, axis=0) for a in (text.ids, text.second_starts, text.ends)))
    counts = chosen(mask(text, make_bits(rows))).sum(axis=0)[text.is_text[0]]
    low, high = count_bounds(rows, counts.sum() / rows / len(counts))
    assert (low < counts).all()
    assert (counts < high).all()


def words_of(ids: list[int], is_text: list[bool]) -> list[list[int]]:
    """The positions of each word."""
    words: list[list[int]] = []
    for position, token in enumerate(ids):
        if is_text[position]:
            if CONTINUES[token] and is_text[position - 1]:
                words[-1].append(position)
            else:
                words.append([position])
    return words


def spans_of(words: list[list[int]], keys: list[int], lengths: list[int]) -> list[list[list[int]]]:
    """The words of a span from each word on, in the order of the keys; none crosses a special token."""
    spans = []
    for first in sorted(range(len(words)), key=lambda n: -keys[n]):
        span = [words[first]]
        for word in words[first + 1 : first + lengths[first]]:
            if word[0] != span[-1][-1] + 1:
                break
            span.append(word)
        spans.append(span)
    return spans


def length_of(draw: int, weights: list[float]) -> int:
    """The number of words that 32 bits choose."""
    sums = np.cumsum(weights) / sum(weights)
    return next(length for length, upto in enumerate(sums, 1) if draw / 2**32 < upto)


WEIGHTS = {
    "span": [0.2 * 0.8 ** (length - 1) for length in range(1, 11)],
    "ngram": [1.0, 1 / 2, 1 / 3],
}


@pytest.mark.parametrize("unit", ["whole_word", *WEIGHTS])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rate=st.floats(0.02, 0.9), slots=st.integers(1, 20))
def test_words_and_spans_are_those_of_a_literal_loop(unit, seed, rate, slots):
    text, bits = make_text(40, seed), make_bits(40, slots, seed, unit=unit)
    flags = chosen(mask(text, bits, MaskingConfig(rate=rate, unit=unit), slots))
    for row, end in enumerate(text.ends.tolist()):
        room = min(slots, max(1, round(end * rate)))
        words = words_of(text.ids[row].tolist(), text.is_text[row].tolist())
        keys, lengths = bits[row, :LENGTH].tolist(), [1] * len(words)
        if unit in WEIGHTS:
            draws = bits[row, LENGTH : LENGTH + len(words)].tolist()
            lengths = [length_of(draw, WEIGHTS[unit]) for draw in draws]
        taken: set[int] = set()
        for span in spans_of(words, keys, lengths):
            for word in span:
                if not taken & {*word} and len(taken) + len(word) <= room:
                    taken.update(word)
        assert set(np.flatnonzero(flags[row])) == taken


@pytest.mark.parametrize(("unit", "together"), [("span", True), ("ngram", False)])
def test_tokens_of_a_span_are_replaced_alike(unit, together):
    text, masking = make_text(3000), MaskingConfig(rate=0.3, mask=0.5, same=0.5, random=0.0, unit=unit)
    batch = mask(text, make_bits(3000, unit=unit), masking)
    is_mask = batch["input_ids"] == MASK
    adjacent = chosen(batch)[:, 1:] & chosen(batch)[:, :-1]
    alike = (is_mask[:, 1:] == is_mask[:, :-1])[adjacent].mean()
    assert alike == 1 if together else 0.4 < alike < 0.6
    low, high = count_bounds(len(is_mask[chosen(batch)]) // 4, 0.5)  # runs have fewer than four tokens
    assert low * 4 < is_mask.sum() < high * 4


def test_mean_length_of_spans_is_that_of_the_paper():
    """3.8 words (Joshi et al. 2020, section 3.1), in a text of one-piece words with one span in each row."""
    rows, length = 4000, 400
    ids, ends = np.full((rows, length), 6, np.int32), np.full(rows, length, np.int32)
    ids[:, 0], ids[:, -1] = 2, 3
    bits = make_bits(rows, 10, length=length, unit="span")
    batch = mask(Text(ids, ends, ends), bits, MaskingConfig(rate=0.025, unit="span"), 10)
    first = np.argmax(bits[:, : length - 2], axis=1) + 1
    flags = np.pad(chosen(batch), ((0, 0), (0, 10)))
    runs = np.stack([flags[np.arange(rows), first + offset] for offset in range(11)], axis=1)
    # The first span of a row is whole, and at times another one begins right after it.
    assert 3.8 < np.argmin(runs, axis=1).mean() < 4.1


def test_rate_zero_and_no_slots_leave_the_text_alone():
    text = make_text(50)
    for masking, slots in (
        (MaskingConfig(rate=0.0), SLOTS),
        (MaskingConfig(), 0),
        (MaskingConfig(rate=0.0), 0),
    ):
        batch = mask(text, make_bits(50, slots), masking, slots)
        np.testing.assert_array_equal(batch["input_ids"], text.ids)
        assert not batch["masked_lm_weights"].any()
        assert batch["masked_lm_ids"].shape == (50, slots)
