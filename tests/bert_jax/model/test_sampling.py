"""Samples follow their distribution, and depend on nothing but key and sequence."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.sampling import sample
from tests.bert_jax.model.test_packed_rows import ROWS, make_batches

KEY = jax.random.key(3)


def make_rows(rows: int, length: int = 8, slots: int = 4) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "input_ids": random.integers(0, 1000, (rows, length), dtype=np.int32),
        "input_mask": np.ones((rows, length), np.int32),
        "masked_lm_positions": np.tile(np.arange(slots, dtype=np.int32), (rows, 1)),
    }


def test_ids_come_as_often_as_their_probabilities_say() -> None:
    probabilities = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
    logits = np.log(probabilities + 1e-30).astype(np.float32)
    batch = make_rows(3000)
    drawn = np.asarray(sample(jnp.broadcast_to(logits, (3000, 4, 5)), batch, KEY))
    for slot in range(4):
        found = np.bincount(drawn[:, slot], minlength=5) / 3000
        deviation = np.sqrt(probabilities * (1 - probabilities) / 3000)
        assert (np.abs(found - probabilities) <= 4 * deviation).all()
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 4 / np.sqrt(3000)


def test_rows_are_drawn_alike_wherever_they_stand() -> None:
    batch, order = make_rows(6), np.array([4, 0, 5, 2])
    logits = np.zeros((6, 4, 50), np.float32)
    drawn = np.asarray(sample(logits, batch, KEY))
    assert len(np.unique(drawn)) > 15
    moved = sample(logits[order], {name: rows[order] for name, rows in batch.items()}, KEY)
    np.testing.assert_array_equal(moved, drawn[order])
    assert (np.asarray(sample(logits, batch, jax.random.key(4))) != drawn).mean() > 0.9
    batch["input_ids"][:, [5, 6]] = batch["input_ids"][:, [6, 5]]
    assert (np.asarray(sample(logits, batch, KEY)) != drawn).mean() > 0.9


def test_instances_are_drawn_alike_in_packed_rows() -> None:
    single, packed = make_batches()
    alone, joined = (
        np.asarray(sample(np.zeros((*batch["masked_lm_ids"].shape, 50), np.float32), batch, KEY))
        for batch in (single, packed)
    )
    flat = iter(alone[single["masked_lm_weights"] > 0].tolist())
    for row in range(len(ROWS)):
        for slot in range(int(packed["masked_lm_weights"][row].sum())):
            assert joined[row, slot] == next(flat)
