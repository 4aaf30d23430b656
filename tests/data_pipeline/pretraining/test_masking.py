"""Masks: counts, places and replacements against the definitions; whole words against a literal loop."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.config import MaskingConfig, Phase
from data_pipeline.pretraining.masking import mask_sequences, num_mask_draws
from data_pipeline.pretraining.pairs import Sequences
from tests.data_pipeline.small_corpus import count_bounds

LENGTH, SLOTS, VOCABULARY, MASK = 32, 6, 50, 4
CONTINUES = np.arange(VOCABULARY) % 3 == 2
PAPER = MaskingConfig()


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


def make_bits(rows: int, slots: int = SLOTS, seed: int = 0, length: int = LENGTH) -> np.ndarray:
    num_draws = num_mask_draws(Phase(length, slots))
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
@pytest.mark.parametrize("unit", ["token", "whole_word"])
def test_only_text_is_ever_chosen_or_changed(unit, length):
    text = make_text(3000, length=length)
    batch = mask(text, make_bits(3000, length=length), MaskingConfig(rate=0.3, unit=unit))
    assert chosen(batch).sum() == batch["masked_lm_weights"].sum()
    assert not (chosen(batch) & ~text.is_text).any()
    np.testing.assert_array_equal(batch["input_ids"][~chosen(batch)], text.ids[~chosen(batch)])


@pytest.mark.parametrize("unit", ["token", "whole_word"])
def test_labels_restore_the_text(unit):
    text = make_text(3000)
    batch = mask(text, make_bits(3000), MaskingConfig(unit=unit))
    restored = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    restored[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    np.testing.assert_array_equal(restored, text.ids)


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


def choose_words_literally(ids: list[int], is_text: list[bool], keys: list[int], room: int) -> set[int]:
    """Words in the order of their keys, each taken if it fits into what is left."""
    words: list[list[int]] = []
    for position, token in enumerate(ids):
        if is_text[position]:
            if CONTINUES[token] and is_text[position - 1]:
                words[-1].append(position)
            else:
                words.append([position])
    taken: set[int] = set()
    for number in sorted(range(len(words)), key=lambda n: -keys[n]):
        if len(taken) + len(words[number]) <= room:
            taken.update(words[number])
    return taken


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), rate=st.floats(0.02, 0.9), slots=st.integers(1, 20))
def test_whole_words_are_those_of_a_literal_loop(seed, rate, slots):
    text, bits = make_text(40, seed), make_bits(40, slots, seed)
    flags = chosen(mask(text, bits, MaskingConfig(rate=rate, unit="whole_word"), slots))
    for row, end in enumerate(text.ends.tolist()):
        room = min(slots, max(1, round(end * rate)))
        keys = bits[row, :LENGTH].tolist()
        expected = choose_words_literally(text.ids[row].tolist(), text.is_text[row].tolist(), keys, room)
        assert set(np.flatnonzero(flags[row])) == expected


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
