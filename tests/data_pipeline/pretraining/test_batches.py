"""Batches are a function of (corpus, settings, seed, step): not of processes, threads or restarts."""

import dataclasses
import gc
import itertools
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.documents import Corpus, open_corpus
from data_pipeline.corpus.store import describe, open_store
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batches import evaluation_batches, make_source, training_batches
from data_pipeline.pretraining.instances import cut_documents, cut_instances
from tests.data_pipeline.same_batches import assert_same, rows_of
from tests.data_pipeline.small_corpus import random_documents, write_corpus
from tests.data_pipeline.unmasked import unmasked_ids

PHASES = (Phase(48, 7, 0.5), Phase(96, 14, 0.5))
DATA = DataConfig(phases=PHASES)
STEPS = 12


@pytest.fixture(scope="module")
def corpus(corpus):
    """Its directory, as settings name it."""
    return str(corpus.directory)


def start(corpus, data=DATA, **changes):
    settings = {"seed": 3, "global_batch_size": 12, "num_train_steps": STEPS, "first_step": 0, **changes}
    return training_batches(corpus, data, **settings)


def train(*args, **changes):
    return list(start(*args, **changes))


@pytest.fixture(scope="module")
def batches(corpus):
    return train(corpus)


def test_batches_are_the_seven_keys_in_the_length_of_the_phase(batches):
    assert len(batches) == STEPS
    for step, batch in enumerate(batches):
        phase = PHASES[step >= STEPS // 2]
        tokens, slots = (12, phase.max_seq_length), (12, phase.max_predictions_per_seq)
        assert {key: (value.shape, value.dtype.name) for key, value in batch.items()} == {
            "input_ids": (tokens, "int32"),
            "input_mask": (tokens, "int32"),
            "segment_ids": (tokens, "int32"),
            "masked_lm_positions": (slots, "int32"),
            "masked_lm_ids": (slots, "int32"),
            "masked_lm_weights": (slots, "float32"),
            "next_sentence_labels": ((12,), "int32"),
        }


def test_a_late_step_is_made_without_those_before_it(corpus):
    """Making them would take more than half an hour."""
    data = DataConfig(phases=(Phase(48, 7),))
    batch = next(start(corpus, data, num_train_steps=20_000_000, first_step=19_000_000))
    assert batch["input_ids"].shape == (12, 48)


def test_same_seed_same_batches(corpus, batches):
    assert_same(train(corpus), batches)


def test_another_seed_gives_other_batches(corpus, batches):
    assert all(
        (a["input_ids"] != b["input_ids"]).any() for a, b in zip(train(corpus, seed=4), batches, strict=True)
    )


@pytest.mark.parametrize("rows", [((0, 6),), ((4, 8),), ((1, 2), (5, 8), (11, 12))])
def test_rows_can_be_had_alone(corpus, batches, rows):
    assert_same(train(corpus, rows=lambda _: rows), [rows_of(batch, rows) for batch in batches])


@pytest.mark.parametrize("threads", [1, 7])
def test_threads_do_not_matter(corpus, batches, threads):
    assert_same(train(corpus, num_threads=threads), batches)


@pytest.mark.parametrize("max_instances", [1, 3])
def test_a_resumed_run_sees_sentences_in_the_order_that_it_would_have_seen(corpus, max_instances):
    data = DataConfig(pairing="sentence_order", phases=PHASES, max_instances_per_row=max_instances)
    whole = train(corpus, data)
    assert 0 < np.concatenate([b["next_sentence_labels"].ravel() for b in whole]).mean() < 1
    part = ((1, 5),)
    assert_same(train(corpus, data, first_step=7, rows=lambda _: part), [rows_of(b, part) for b in whole[7:]])


@pytest.mark.parametrize("max_instances", [1, 3])
def test_the_masking_rate_falls_from_step_to_step_also_when_resumed(corpus, max_instances):
    masking = MaskingConfig(rate=0.5, last_rate=0.1)
    phases = (Phase(48, 24, 0.5), Phase(96, 48, 0.5))
    data = DataConfig(phases=phases, masking=masking, max_instances_per_row=max_instances)
    whole = train(corpus, data)
    for step, batch in enumerate(whole):
        rate = batch["masked_lm_weights"].sum() / batch["input_mask"].sum()
        assert rate == pytest.approx(0.5 - 0.4 * step / STEPS, abs=0.015)
    assert_same(train(corpus, data, first_step=7), whole[7:])


def test_a_rate_that_does_not_change_gives_the_same_masks(corpus, batches):
    data = DataConfig(phases=PHASES, masking=MaskingConfig(last_rate=0.15))
    assert_same(train(corpus, data), batches)


def test_held_out_text_is_masked_at_the_last_rate(tmp_path):
    kept = str(write_corpus(tmp_path, [random_documents(3)], [random_documents(4)]))
    changing, constant = (
        next(evaluation_batches(kept, DataConfig(masking=masking), Phase(48, 24), batch_size=8, examples=8))
        for masking in (MaskingConfig(rate=0.5, last_rate=0.1), MaskingConfig(rate=0.1))
    )
    assert_same([changing], [constant])


@pytest.mark.parametrize("first_step", [1, 5, 6, 7, 11, 12])
def test_a_resumed_run_sees_what_it_would_have_seen(corpus, batches, first_step):
    assert_same(train(corpus, first_step=first_step), batches[first_step:])


def test_batch_size_does_not_change_examples(corpus):
    data = DataConfig(phases=(Phase(48, 7),))
    small, large = (
        train(corpus, data, num_train_steps=6, global_batch_size=4),
        train(corpus, data, num_train_steps=2),
    )
    for key in small[0]:
        np.testing.assert_array_equal(
            np.concatenate([b[key] for b in small]), np.concatenate([b[key] for b in large])
        )


@pytest.mark.parametrize("max_instances", [1, 3])
def test_a_batch_that_grows_reads_the_same_examples_in_the_same_order(corpus, max_instances):
    constant = DataConfig(phases=PHASES, max_instances_per_row=max_instances)
    growing = dataclasses.replace(constant, batch_schedule=((1 / 6, 1 / 4), (1 / 3, 1 / 2), (3 / 4, 3 / 4)))
    whole = train(corpus, growing)
    assert [len(batch["input_ids"]) for batch in whole] == [3, 3, 6, 6, 9, 9, 9, 9, 9, 12, 12, 12]
    for number, (length, first) in enumerate(((48, 0), (96, 6))):
        grown, same = (
            [b for b in batches if b["input_ids"].shape[1] == length]
            for batches in (whole, train(corpus, constant))
        )
        for key in grown[0]:
            rows = np.concatenate([batch[key] for batch in grown])
            expected = np.concatenate([batch[key] for batch in same])[: len(rows)]
            np.testing.assert_array_equal(rows, expected, err_msg=f"phase {number}, {key}")
        assert_same(train(corpus, growing, first_step=first), whole[first:])
    assert_same(train(corpus, growing, first_step=5), whole[5:])
    halves = [train(corpus, growing, rows=lambda size, p=p: ((p * size // 3, size),)) for p in (0, 2)]
    assert_same(
        halves[1], [rows_of(b, ((2 * len(b["input_ids"]) // 3, len(b["input_ids"])),)) for b in whole]
    )


def test_an_epoch_visits_every_instance_once(tmp_path):
    # Each document is one sentence as long as a sequence, so the first id tells which instance it is.
    documents = [[[5 + number] + [500] * 29] for number in range(40)]
    write_corpus(tmp_path, [documents])
    data = DataConfig(
        pairing="contiguous", short_seq_prob=0.0, masking=MaskingConfig(rate=0.0), phases=(Phase(32, 0),)
    )
    seen = [
        b["input_ids"][:, 1] - 5 for b in train(str(tmp_path), data, global_batch_size=8, num_train_steps=15)
    ]
    epochs = np.concatenate(seen).reshape(3, 40)
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_instances_are_as_long_as_the_text_of_a_sequence(corpus):
    store = open_store(corpus, "train")
    for pairing, text_tokens in (("next_sentence", 45), ("contiguous", 46)):
        source = make_source(store, DataConfig(pairing=pairing), Phase(48, 7))
        cut = cut_instances(store.sentence_starts, store.document_starts, text_tokens, cut_documents)
        assert len(source) == len(cut)


def test_phases_of_one_length_see_other_examples(corpus):
    halves = DataConfig(phases=(Phase(48, 7, 0.5), Phase(48, 7, 0.5)))
    batches = train(corpus, halves)
    for a, b in zip(batches[: STEPS // 2], batches[STEPS // 2 :], strict=True):
        assert (a["input_ids"] != b["input_ids"]).any()


def test_mask_segments_and_labels_agree_with_the_corpus(corpus):
    """Restored from its labels, each segment is a run of tokens of one document; label 1: of two."""
    opened = open_corpus(corpus, "train")
    starts = opened.sentence_starts[opened.document_starts]
    documents = [
        "," + ",".join(map(str, opened.read(a, b).tolist())) + "," for a, b in itertools.pairwise(starts)
    ]
    for batch in train(corpus, num_train_steps=4, data=DataConfig(phases=(Phase(48, 7),))):
        restored = unmasked_ids(batch)
        for row in range(len(restored)):
            used = batch["input_mask"][row] == 1
            assert not restored[row][~used].any()
            assert not batch["segment_ids"][row][~used].any()
            segments = [restored[row][used & (batch["segment_ids"][row] == s)].tolist() for s in (0, 1)]
            assert (segments[0][0], segments[0][-1], segments[1][-1]) == (2, 3, 3)
            a, b = ("," + ",".join(map(str, text)) + "," for text in (segments[0][1:-1], segments[1][:-1]))
            homes = [{i for i, d in enumerate(documents) if text in d} for text in (a, b)]
            assert homes[0]
            assert homes[1]
            if max(map(len, homes)) == 1:
                assert batch["next_sentence_labels"][row] == (homes[0] != homes[1])


def evaluate(corpus, data=DATA, phase=PHASES[0], batch_size=8, examples=20, **rows):
    return list(evaluation_batches(corpus, data, phase, batch_size=batch_size, examples=examples, **rows))


def test_a_corpus_is_let_go_with_its_batches(corpus):
    evaluate(corpus)
    gc.collect()
    before = count_open(corpus)
    interrupted = start(corpus, num_train_steps=40)
    next(interrupted)
    assert count_open(corpus) == before + 1
    del interrupted
    evaluate(corpus)
    gc.collect()
    assert count_open(corpus) == before


def count_open(directory):
    return sum(type(o) is Corpus and o.directory == Path(directory) for o in gc.get_objects())


def test_evaluation_is_always_the_same_and_filled_up_with_zeros(corpus):
    batches = evaluate(corpus)
    assert_same(evaluate(corpus), batches)
    assert [b["input_ids"].shape for b in batches] == [(8, 48)] * 3
    is_row = np.concatenate([b["input_mask"].any(axis=1) for b in batches])
    assert is_row.tolist() == [True] * 20 + [False] * 4
    for values in batches[-1].values():
        assert not values[4:].any()


def test_evaluation_does_not_depend_on_the_batch_size(corpus):
    whole = evaluate(corpus, batch_size=20)[0]
    parts = evaluate(corpus, batch_size=5)
    for key, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([b[key] for b in parts]), values)


@pytest.mark.parametrize("rows", [((0, 4),), ((4, 8),), ((2, 3), (3, 5), (7, 8))])
def test_rows_of_an_evaluation_can_be_had_alone(corpus, rows):
    # The last batch has four rows, so some of these ranges get only a part of it or nothing.
    assert_same(evaluate(corpus, rows=rows), [rows_of(batch, rows) for batch in evaluate(corpus)])


def test_evaluation_takes_no_more_than_there_is_and_spreads_over_all_of_it(tmp_path):
    documents = [[[5 + number] + [500] * 29] for number in range(40)]
    write_corpus(tmp_path, [documents], [documents])
    data = DataConfig(pairing="contiguous", short_seq_prob=0.0, masking=MaskingConfig(rate=0.0))
    for examples, expected in ((100, list(range(40))), (4, [0, 10, 20, 30])):
        batches = evaluate(str(tmp_path), data, Phase(32, 0), batch_size=16, examples=examples)
        ids = np.concatenate([b["input_ids"][:, 1] for b in batches])
        assert (ids[ids > 0] - 5).tolist() == expected


def test_evaluation_reads_the_held_out_documents(tmp_path):
    write_corpus(tmp_path, [[[[10] * 20], [[10] * 20]]], [[[[20] * 20], [[20] * 20]]])
    data = DataConfig(masking=MaskingConfig(rate=0.0))
    ids = np.concatenate([b["input_ids"] for b in evaluate(str(tmp_path), data, Phase(32, 0))])
    assert set(np.unique(ids)) == {0, 2, 3, 20}


def test_has_heldout(corpus, tmp_path):
    assert describe(corpus).has_heldout
    assert not describe(str(write_corpus(tmp_path, [random_documents(3)]))).has_heldout


def test_bad_input_is_refused_before_the_first_batch(corpus, tmp_path):
    with pytest.raises(UserError, match="is not a corpus"):
        start(str(tmp_path))
    single = str(write_corpus(tmp_path / "single", [random_documents(1)]))
    with pytest.raises(UserError, match=r"train split of .*single has 1 document.*2 or more.*contiguous"):
        start(single)
    kept = str(write_corpus(tmp_path / "kept", [random_documents(3)], [random_documents(1)]))
    with pytest.raises(UserError, match=r"heldout split of .*kept has 1 document.*larger --holdout"):
        evaluation_batches(kept, DATA, PHASES[0], batch_size=8, examples=20)
    empty = str(write_corpus(tmp_path / "empty", [[]]))
    with pytest.raises(UserError, match=r"train split of .*empty is empty"):
        start(empty, DataConfig(pairing="contiguous"))
    with pytest.raises(UserError, match="no heldout documents"):
        evaluation_batches(single, DATA, PHASES[0], batch_size=8, examples=20)
