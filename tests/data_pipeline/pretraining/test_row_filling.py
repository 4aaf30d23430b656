"""Packed rows: full, whole, and as much a function of (corpus, settings, seed, step) as any others."""

import dataclasses
import itertools

import numpy as np
import pytest

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import evaluation_batches, training_batches
from data_pipeline.pretraining.corpus_source import Drawn, make_corpus_source
from data_pipeline.pretraining.masking import num_mask_draws, share_draws
from data_pipeline.pretraining.order import shuffled_columns
from data_pipeline.pretraining.pairs import PAIR_DRAWS
from data_pipeline.pretraining.statistics import draw_examples, measure
from data_pipeline.tensorflow_cpu import tf
from tests.data_pipeline.same_batches import assert_same
from tests.data_pipeline.unmasked import unmasked_ids

LENGTH, SLOTS, INSTANCES = 128, 20, 6
PHASE = Phase(LENGTH, SLOTS)
DATA = DataConfig(phases=(PHASE,), max_instances_per_row=INSTANCES)
VARIANTS = {
    "pairs": DATA,
    "sentence order": dataclasses.replace(DATA, pairing="sentence_order"),
    "contiguous": dataclasses.replace(DATA, pairing="contiguous"),
    "whole words": dataclasses.replace(DATA, masking=MaskingConfig(unit="whole_word")),
    "spans": dataclasses.replace(DATA, masking=MaskingConfig(unit="span")),
    "no masks": dataclasses.replace(DATA, masking=MaskingConfig(rate=0.0)),
    "few slots": dataclasses.replace(DATA, phases=(Phase(LENGTH, 4),)),
}


def draw(corpus, data: DataConfig = DATA, rows: int = 300) -> Drawn:
    return draw_examples(make_corpus_source(corpus, data, data.phases[0]), 3, 0, 0, rows)


def train(corpus, **changes):
    settings = {"seed": 3, "global_batch_size": 12, "num_train_steps": 6, "first_step": 0, **changes}
    return list(training_batches(str(corpus.directory), DATA, **settings))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_are_their_instances_one_behind_the_other(corpus, variant):
    drawn = draw(corpus, VARIANTS[variant])
    restored, batch = unmasked_ids(drawn.batch), drawn.batch
    end_of = np.zeros(len(restored), int)
    for i in np.lexsort((drawn.places.numbers, drawn.places.rows)):
        row, number, length = drawn.places.rows[i], drawn.places.numbers[i], drawn.sequences.ends[i]
        start = end_of[row]
        columns = slice(start, start + length)
        assert batch["instance_starts"][row, number] == start
        assert batch["next_sentence_labels"][row, number] == drawn.sequences.labels[i]
        assert restored[row, columns].tolist() == drawn.sequences.input_ids[i, :length].tolist()
        is_second = np.arange(length) >= drawn.sequences.second_starts[i]
        assert batch["segment_ids"][row, columns].tolist() == is_second.tolist()
        end_of[row] += length
    is_token = np.arange(LENGTH) < end_of[:, np.newaxis]
    np.testing.assert_array_equal(batch["input_mask"], is_token)
    assert not restored[~is_token].any()
    assert not batch["segment_ids"][~is_token].any()
    counts = np.bincount(drawn.places.rows)
    unused = np.arange(INSTANCES) >= counts[:, np.newaxis]
    assert not batch["instance_starts"][unused].any()
    assert not batch["next_sentence_labels"][unused].any()
    assert counts.max() > 2


def test_each_instance_gets_its_predictions_as_far_as_slots_reach(corpus):
    for data in (DATA, VARIANTS["few slots"]):
        drawn, slots = draw(corpus, data), data.phases[0].max_predictions_per_seq
        wanted = np.zeros((len(drawn.batch["input_ids"]), INSTANCES), int)
        wanted[drawn.places.rows, drawn.places.numbers] = np.maximum(1, np.round(drawn.sequences.ends * 0.15))
        expected = np.diff(np.minimum(np.cumsum(wanted, axis=1), slots), axis=1, prepend=0)
        starts, used = drawn.batch["instance_starts"], drawn.batch["masked_lm_weights"] > 0
        for row, positions in enumerate(drawn.batch["masked_lm_positions"]):
            own = positions[used[row]]
            assert (np.diff(own) > 0).all()
            instances = np.unique(starts[row])
            found = np.bincount(np.searchsorted(instances, own, side="right") - 1, minlength=INSTANCES)
            assert found.tolist() == expected[row].tolist()
            assert not np.isin(own, instances).any()


@pytest.mark.parametrize("variant", ["pairs", "contiguous"])
def test_hardly_a_position_is_padding(corpus, variant):
    data = VARIANTS[variant]
    single = dataclasses.replace(data, max_instances_per_row=1)
    padding = [measure(make_corpus_source(corpus, d, PHASE), 0, 0, 1000).padding for d in (single, data)]
    assert padding[0] > 0.1
    assert padding[1] < 0.03


@pytest.mark.parametrize("variant", VARIANTS)
def test_statistics_of_packed_rows_are_as_promised(corpus, variant):
    data = VARIANTS[variant]
    statistics = measure(make_corpus_source(corpus, data, data.phases[0]), 0, 0, 2000)
    assert [check for check in statistics.checks if not check.is_within] == []
    assert 1.3 < statistics.examples / statistics.rows < statistics.most_in_a_row <= INSTANCES


def test_batches_are_a_function_of_seed_and_step(corpus):
    batches = train(corpus)
    assert batches[0]["instance_starts"].shape == batches[0]["next_sentence_labels"].shape == (12, INSTANCES)
    assert_same(train(corpus, num_threads=1), batches)
    assert_same(train(corpus, first_step=4), batches[4:])
    parts = [train(corpus, rows=lambda _, start=start: ((start, start + 4),)) for start in (0, 4, 8)]
    joined = [{key: np.concatenate([p[step][key] for p in parts]) for key in batches[0]} for step in range(6)]
    assert_same(joined, batches)
    assert (train(corpus, seed=4)[0]["input_ids"] != batches[0]["input_ids"]).any()


def test_every_column_visits_every_instance_once_an_epoch():
    columns = shuffled_columns(5, 0, tf.range(100, 200, dtype=tf.int64), 50, 4).numpy()
    assert columns.shape == (100, 4)
    # Each column starts at another offset, so it sees the end of one epoch and the beginning of the next.
    longer = shuffled_columns(5, 0, tf.range(0, 300, dtype=tf.int64), 50, 1).numpy()[:, 0]
    for column, ahead in enumerate((0, 12, 25, 37)):
        assert columns[:, column].tolist() == longer[100 + ahead : 200 + ahead].tolist()


@pytest.mark.parametrize(("unit", "draws_of_a_token"), [("token", 1), ("span", 2)])
def test_no_draw_serves_two_tokens_or_two_slots(unit, draws_of_a_token):
    bits = np.tile(np.arange(num_mask_draws(LENGTH, SLOTS, unit), dtype=np.uint32), (3, 1))
    lengths, slots = (50, 60, 18), (8, 9, 3)
    starts, before = np.cumsum([0, *lengths[:-1]]), np.cumsum([0, *slots[:-1]])
    shared = share_draws(bits, starts, before, PHASE, unit)
    ends = [LENGTH * (part + 1) for part in range(draws_of_a_token)]
    *of_tokens, actions, id_draws = np.split(shared, [*ends, ends[-1] + SLOTS], axis=1)
    used = [part[i, :n].tolist() for part in of_tokens for i, n in enumerate(lengths)]
    used += [part[i, :n].tolist() for part in (actions, id_draws) for i, n in enumerate(slots)]
    assert sorted(itertools.chain.from_iterable(used)) == list(
        range(num_mask_draws(PHASE.max_seq_length, PHASE.max_predictions_per_seq, unit))
    )


def test_instances_of_a_row_draw_from_bits_of_their_own(corpus):
    source = make_corpus_source(corpus, DATA, PHASE)
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, len(source), (200, INSTANCES))
    bits = rng.integers(0, 2**32, (200, source.num_draws), np.uint32)
    changed = bits.copy()
    changed[:, PAIR_DRAWS : 2 * PAIR_DRAWS] ^= np.uint32(0xFFFFFFFF)
    before, after = source.draw(numbers, bits, 0.0), source.draw(numbers, changed, 0.0)
    firsts = slice(0, 200)
    assert before.spans.a_start[firsts].tolist() == after.spans.a_start[firsts].tolist()
    seconds = [d.spans.a_start[d.places.numbers == 1] for d in (before, after)]
    assert (seconds[0] != seconds[1]).mean() > 0.5


def test_evaluation_does_not_pack(corpus):
    single = dataclasses.replace(DATA, max_instances_per_row=1)
    batches = [
        list(evaluation_batches(str(corpus.directory), data, PHASE, batch_size=8, examples=20))
        for data in (DATA, single)
    ]
    assert_same(*batches)
    assert "instance_starts" not in batches[0][0]


def test_a_row_of_no_instance_is_refused():
    with pytest.raises(UserError, match="max_instances_per_row is 0; it must be at least 1"):
        DataConfig(max_instances_per_row=0)
