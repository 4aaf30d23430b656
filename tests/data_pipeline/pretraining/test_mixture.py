"""Several corpora in one run: exact proportions, and batches that are a function of the step alone."""

import dataclasses

import numpy as np
import pytest

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.store import describe, open_store, verify
from data_pipeline.corpus.tokenizer import WordPiece
from data_pipeline.errors import UserError
from data_pipeline.pretraining import order
from data_pipeline.pretraining.batches import evaluation_batches, make_source, training_batches
from data_pipeline.pretraining.mixture import BLOCK, mix, share_out
from data_pipeline.tensorflow_cpu import tf
from tests.data_pipeline.same_batches import assert_same, rows_of
from tests.data_pipeline.small_corpus import VOCABULARY, random_documents, write_corpus
from tests.data_pipeline.small_records import write_records

FIRST_OF_B = 300  # ids of corpus a are below it, those of b are not
SIZE = 250
DATA = DataConfig(phases=(Phase(32, 4, 0.5), Phase(48, 7, 0.5)), weights=(0.7, 0.3), short_seq_prob=0.0)
UNMASKED = dataclasses.replace(DATA, masking=MaskingConfig(rate=0))


def documents(count: int, seed: int, low: int, high: int):
    return [
        [[low + token % (high - low) for token in sentence] for sentence in document]
        for document in random_documents(count, seed)
    ]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Two corpora of one vocabulary, as settings name them."""
    directory = tmp_path_factory.mktemp("mixture")
    for name, count, low, high in (("a", 50, 5, FIRST_OF_B), ("b", 20, FIRST_OF_B, len(VOCABULARY))):
        write_corpus(
            directory / name, [documents(count, 1, low, high)], [documents(count // 2, 2, low, high)]
        )
    return f"{directory}/a,{directory}/b"


def train(corpora, data=DATA, **changes):
    settings = {"seed": 3, "global_batch_size": SIZE, "num_train_steps": 16, "first_step": 0, **changes}
    return list(training_batches(corpora, data, **settings))


@pytest.fixture(scope="module")
def batches(corpora):
    return train(corpora)


def corpus_of_rows(batch) -> np.ndarray:
    """0 or 1 for each row; no row holds text of both."""
    is_text = batch["input_ids"] >= 5
    of_b = (is_text & (batch["input_ids"] >= FIRST_OF_B)).sum(axis=1)
    tokens = is_text.sum(axis=1)
    assert ((of_b == 0) | (of_b == tokens)).all()
    return (of_b > 0).astype(int)


@pytest.mark.parametrize("packed", [1, 3])
def test_each_block_has_the_exact_share_of_each_corpus(corpora, packed):
    data = dataclasses.replace(UNMASKED, max_instances_per_row=packed)
    rows = [corpus_of_rows(batch) for batch in train(corpora, data)]
    for phase in (rows[:8], rows[8:]):
        blocks = np.concatenate(phase).reshape(-1, BLOCK)
        assert blocks.sum(axis=1).tolist() == [300, 300]
        assert (blocks[0] != blocks[1]).any()
    assert (rows[0] != rows[8]).any(), "each phase has its own permutations"
    assert len({int(row.sum()) for row in rows}) > 4, "they are not in turn"


@pytest.mark.parametrize("counts", [[700, 300], [1, 999], [333, 334, 333]])
def test_the_examples_of_a_corpus_are_counted_one_by_one(counts):
    corpora, visits = (
        values.numpy() for values in mix(1, 0, tf.range(3 * BLOCK, dtype=tf.int64), np.array(counts))
    )
    for corpus, count in enumerate(counts):
        assert sorted(visits[corpora == corpus]) == list(range(3 * count))
    some = tf.constant([2 * BLOCK + 7, 5, BLOCK], tf.int64)
    for values, all_values in zip(mix(1, 0, some, np.array(counts)), (corpora, visits), strict=True):
        assert values.numpy().tolist() == all_values[some.numpy()].tolist()


def test_each_corpus_goes_through_its_own_epochs(corpora):
    source = make_source(open_store(corpora, "train", DATA.weights), DATA, DATA.phases[0])
    positions = tf.range(4 * BLOCK, dtype=tf.int64)
    numbers = source.order(3, 0, positions).numpy()[:, 0]
    of_row, visits = (values.numpy() for values in mix(3, 0, positions, np.array([700, 300])))
    orders, first = [], 0
    for corpus, part in enumerate(source.sources):
        is_own = of_row == corpus
        visited = (numbers[is_own] - first)[visits[is_own].argsort()]
        epochs = len(visited) // len(part)
        assert epochs > 1
        for epoch in visited[: epochs * len(part)].reshape(epochs, len(part)):
            assert sorted(epoch) == list(range(len(part)))
        orders.append(visited)
        first += len(part)
    alone = source.sources[0].order(3, 0, tf.range(len(orders[0]), dtype=tf.int64)).numpy()[:, 0]
    assert orders[0].tolist() == alone.tolist(), "the first corpus has the order that it has alone"


def test_a_batch_costs_as_much_late_as_early(corpora, monkeypatch):
    # Rows of a large corpus, seen as visits of a small one, would span thousands of its epochs.
    made = []
    original = order._cipher_keys

    def count_epochs(seed, stream, epochs):
        made.append(int(tf.reduce_max(epochs) - tf.reduce_min(epochs)) + 1)
        return original(seed, stream, epochs)

    monkeypatch.setattr(order, "_cipher_keys", count_epochs)
    source = make_source(open_store(corpora, "train", (0.2, 0.8)), DATA, DATA.phases[0])
    for first in (0, 10**9):
        source.order(3, 0, first + tf.range(64, dtype=tf.int64))
    assert max(made) < BLOCK


def test_corpora_of_one_size_are_not_in_one_order(tmp_path):
    for name in "ab":
        write_corpus(tmp_path / name, [documents(30, 1, 5, FIRST_OF_B)], [documents(5, 2, 5, FIRST_OF_B)])
    weights = (0.5, 0.5)
    source = make_source(open_store(f"{tmp_path}/a,{tmp_path}/b", "train", weights), DATA, DATA.phases[0])
    positions = tf.range(BLOCK, dtype=tf.int64)
    numbers = source.order(3, 0, positions).numpy()[:, 0]
    of_row, visits = (values.numpy() for values in mix(3, 0, positions, np.array([500, 500])))
    size = len(source.sources[0])
    first, second = (
        numbers[of_row == corpus][visits[of_row == corpus].argsort()] % size for corpus in (0, 1)
    )
    assert (first == second).mean() < 10 / size


def test_rows_before_a_position_are_counted(corpora):
    source = make_source(open_store(corpora, "train", DATA.weights), DATA, DATA.phases[0])
    corpora_of, _ = mix(3, 1, tf.range(2345, dtype=tf.int64), np.array([700, 300]))
    assert source.rows_before(3, 1, 2345).tolist() == np.bincount(corpora_of.numpy()).tolist()
    assert source.rows_before(3, 1, 0).tolist() == [0, 0]


@pytest.mark.parametrize("step", [1, 7, 8, 13])
def test_a_resumed_run_goes_on_with_the_same_batches(corpora, batches, step):
    assert_same(train(corpora, first_step=step), batches[step:])


def test_processes_make_their_rows_alone(corpora, batches):
    """Also where a process has rows of one corpus only."""
    for rows in (((0, 125),), ((125, 250),), ((3, 4), (9, 11))):
        made = train(corpora, rows=lambda _, ranges=rows: ranges)
        assert_same(made, [rows_of(batch, rows) for batch in batches])


def test_one_corpus_with_weight_1_is_as_without_weights(corpora):
    one = corpora.split(",")[0]
    plain = dataclasses.replace(DATA, weights=())
    assert_same(train(one, dataclasses.replace(DATA, weights=(1.0,))), train(one, plain))


def test_evaluation_is_on_all_in_the_same_proportion(corpora):
    made = list(evaluation_batches(corpora, UNMASKED, UNMASKED.phases[0], batch_size=16, examples=50))
    real = [{key: values[batch["input_mask"].any(axis=1)] for key, values in batch.items()} for batch in made]
    rows = np.concatenate([corpus_of_rows(batch) for batch in real])
    assert np.bincount(rows).tolist() == [35, 15]
    few = list(
        evaluation_batches(corpora, UNMASKED, UNMASKED.phases[0], batch_size=16, examples=3, rows=((8, 16),))
    )
    assert not few[0]["input_mask"].any(), "a process whose rows are all padding"
    texts = {row.tobytes() for batch in real for row in batch["input_ids"]}
    assert len(texts) > 45, "spread over the documents"


@pytest.mark.parametrize("weights", [(0.7, 0.3), (1 / 3, 1 / 3, 1 / 3), (0.29, 0.57, 0.14), (0.9995, 0.0005)])
@pytest.mark.parametrize("total", [1000, 7, 0])
def test_shares_add_up_and_are_off_by_less_than_one(weights, total):
    shares = share_out(weights, total)
    assert shares.sum() == total
    assert np.abs(shares - np.array(weights) * total).max() < 1
    assert share_out((0.7, 0.3), 7).tolist() == [5, 2], "4.9 and 2.1: the largest remainder first"


def test_the_fingerprint_covers_every_corpus_and_their_order(corpora):
    a, b = corpora.split(",")
    prints = {describe(named).fingerprint for named in (a, b, corpora, f"{b},{a}")}
    assert len(prints) == 4
    assert describe(corpora).has_heldout
    verify(corpora)


def test_corpora_that_cannot_be_mixed_are_named(corpora, tmp_path):
    a, _ = corpora.split(",")
    other = WordPiece([*VOCABULARY, "more"], "uncased")
    write_corpus(tmp_path / "other", [random_documents(4)], [random_documents(4)], other)
    with pytest.raises(UserError, match=r"other has another vocabulary than .*/a, .*--vocab .*/a$"):
        describe(f"{a},{tmp_path}/other")
    write_corpus(tmp_path / "whole", [random_documents(4)])
    assert not describe(f"{a},{tmp_path}/whole").has_heldout
    (tmp_path / "records").mkdir()
    write_records(tmp_path / "records" / "a.tfrecord", range(3))
    with pytest.raises(UserError, match=r"records is of TFRecords; data\.corpus mixes"):
        describe(f"{a},{tmp_path}/records")


@pytest.mark.parametrize(
    ("corpus", "weights", "message"),
    [
        ("a,b", (), r"names a, b, but data\.weights has 0 numbers; give one for each"),
        ("a,b", (1.0,), "has 1 numbers"),
        ("a", (0.5, 0.5), "names a, but"),
        ("a,a", (0.5, 0.5), "must name each corpus once"),
        ("a,", (0.5, 0.5), "must name each corpus once"),
        (
            "a,b",
            (0.5, 0.4),
            r"data\.weights is 0\.5 0\.4; the weights must be at least 0\.001 and add up to 1",
        ),
        ("a,b", (0.9999, 0.0001), "must be at least 0.001"),
        ("a,b", (float("nan"), 0.5), "must be at least 0.001"),
        ("a,installed-documentation", (0.5, 0.5), "make a corpus of it with `bert-jax prepare"),
    ],
)
def test_settings_that_do_not_fit_are_refused(corpus, weights, message):
    with pytest.raises(UserError, match=message):
        DataConfig(corpus=corpus, weights=weights)
