"""A packed batch gives the same results as its instances in rows of their own; none sees another."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.encoder import Encoder
from bert_jax.model.packed_rows import instance_weights, instances_of
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.task import PretrainingTask
from tests.bert_jax.encoders import CASES, ENCODERS
from tests.bert_jax.small_run import trainable_params
from tests.bert_jax.tiny_model import TINY

CONFIG = dataclasses.replace(TINY, num_layers=2, dropout_rate=0.0, attention_dropout_rate=0.0)
LENGTH, SLOTS, INSTANCES = 12, 5, 3
# Lengths of the instances in each row; the second row has padding, the third is full.
ROWS = ((4, 5, 3), (6, 3), (12,), (5, 7))
# Each is compiled twice; the others are for `-m slow`.
IN_EVERY_RUN = (("mlm_nsp", "bert"), ("mlm_nsp", "modern"), ("ltr", "modern"))

Batch = dict[str, np.ndarray]


def make_batches() -> tuple[Batch, Batch]:
    """The same random instances: each in a row of its own, and packed as in `ROWS`."""
    random = np.random.default_rng(0)
    flat = [(row, sum(lengths[:k]), k, n) for row, lengths in enumerate(ROWS) for k, n in enumerate(lengths)]
    tokens, slots = ("input_ids", "input_mask", "segment_ids"), ("masked_lm_positions", "masked_lm_ids")

    def empty(rows: int) -> Batch:
        arrays = {key: np.zeros((rows, LENGTH), np.int32) for key in tokens}
        arrays |= {key: np.zeros((rows, SLOTS), np.int32) for key in slots}
        return arrays | {"masked_lm_weights": np.zeros((rows, SLOTS), np.float32)}

    single, packed = empty(len(flat)), empty(len(ROWS))
    single["next_sentence_labels"] = random.integers(0, 2, len(flat), dtype=np.int32)
    for key in ("next_sentence_labels", "instance_starts"):
        packed[key] = np.zeros((len(ROWS), INSTANCES), np.int32)
    used = [0] * len(ROWS)
    for i, (row, start, k, length) in enumerate(flat):
        ids = random.integers(5, CONFIG.vocab_size, length)
        segments = np.arange(length) >= length // 2
        for batch, at, offset in ((single, i, 0), (packed, row, start)):
            columns = slice(offset, offset + length)
            batch["input_ids"][at, columns] = ids
            batch["input_mask"][at, columns] = 1
            batch["segment_ids"][at, columns] = segments
        count = max(1, length // 3)
        positions, targets = np.arange(1, count + 1), random.integers(5, CONFIG.vocab_size, count)
        for batch, at, offset, first in ((single, i, 0, 0), (packed, row, start, used[row])):
            batch["masked_lm_positions"][at, first : first + count] = positions + offset
            batch["masked_lm_ids"][at, first : first + count] = targets
            batch["masked_lm_weights"][at, first : first + count] = 1
        used[row] += count
        packed["next_sentence_labels"][row, k] = single["next_sentence_labels"][i]
        packed["instance_starts"][row, k] = start
    return single, packed


@functools.partial(jax.jit, static_argnums=0)
def sums_and_gradient(task: PretrainingTask, params: dict, batch: Batch) -> tuple[dict, dict]:

    def loss(params: dict) -> tuple[jax.Array, dict]:
        totals = task.denominators(batch)
        sums = task.numerators(task.module.apply({"params": params}, batch, deterministic=True), batch)
        return task.loss(sums, totals), sums | totals

    gradient, sums = jax.grad(loss, has_aux=True)(params)
    return sums, gradient


@pytest.mark.parametrize(
    ("objective", "encoder"),
    [pytest.param(*case, marks=() if case in IN_EVERY_RUN else pytest.mark.slow) for case in CASES],
)
def test_packed_rows_give_the_sums_and_gradients_of_single_ones(objective: str, encoder: str) -> None:
    kind = OBJECTIVES[objective]
    config = dataclasses.replace(CONFIG, attention=kind.attention, **ENCODERS[encoder])
    task, params = PretrainingTask(kind(), config), trainable_params(config, kind())
    single, packed = (sums_and_gradient(task, params, batch) for batch in make_batches())
    assert single[0]["examples"] == sum(map(len, ROWS))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), packed, single)


@pytest.mark.parametrize("attention", ["bidirectional", "causal", "anticausal"])
def test_gradient_from_another_instance_is_exactly_zero(attention: str) -> None:
    config = dataclasses.replace(CONFIG, attention=attention)
    encoder, params = Encoder(config), trainable_params(config)["encoder"]
    ids = jnp.arange(LENGTH)[None] + 5  # each position has a row of the word embeddings to itself
    batch = {"input_ids": ids, "input_mask": jnp.ones_like(ids), "segment_ids": jnp.zeros_like(ids)}
    batch["instance_starts"] = jnp.array([[0, 4, 9]])
    everywhere = jnp.arange(LENGTH)[None]

    @jax.jit
    @jax.grad
    def influence_on(table: jax.Array, start: int, stop: int, positions: jax.Array | None) -> jax.Array:
        changed = {**params, "embeddings": {**params["embeddings"], "word_embeddings": {"embedding": table}}}
        states = encoder.apply({"params": changed}, batch, True, positions)
        is_inside = (everywhere[0] >= start) & (everywhere[0] < stop)
        return (states[0] * is_inside[:, None] * jnp.arange(config.hidden_size)).sum()

    table = params["embeddings"]["word_embeddings"]["embedding"]
    for start, stop in ((0, 4), (4, 9), (9, 12)):
        for positions in (None, everywhere) if attention == "bidirectional" else (None,):
            influence = np.abs(influence_on(table, start, stop, positions)).max(axis=1)[5 : 5 + LENGTH]
            inside = np.arange(start, stop)
            assert (influence[inside] > 0).all()
            assert not np.delete(influence, inside).any()


def test_instances_and_weights_are_read_from_the_starts() -> None:
    _, packed = make_batches()
    found = instances_of(packed)
    assert found[0].tolist() == [0] * 4 + [4] * 5 + [9] * 3
    assert found[2].tolist() == [0] * 12
    packed["input_mask"][3] = 0  # a row of padding
    assert instance_weights(packed).tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]]
