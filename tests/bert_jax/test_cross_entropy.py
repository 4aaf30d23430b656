"""The cross-entropy of labels, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.cross_entropy import cross_entropy, score_by_comparison, score_by_index

LABELS = np.array([[0, 3, 6], [2, 6, 1]])


def draw_logits() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 3, (2, 3, 7)).astype(np.float32)


def test_it_is_minus_the_log_of_the_labels_probability() -> None:
    logits = draw_logits()
    losses, is_right = cross_entropy(logits, LABELS)
    each = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), LABELS[..., None], -1)[..., 0]
    np.testing.assert_allclose(losses, -each, rtol=1e-5)
    np.testing.assert_array_equal(is_right, logits.argmax(-1) == LABELS)


def test_its_gradient_is_the_probability_less_the_label() -> None:
    logits, weights = draw_logits(), jnp.array([[1.0, 0.5, 2.0], [0.0, 1.0, 3.0]])
    gradient = jax.jit(jax.grad(lambda logits: (cross_entropy(logits, LABELS)[0] * weights).sum()))(logits)
    expected = (jax.nn.softmax(logits) - jax.nn.one_hot(LABELS, 7)) * weights[..., None]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_both_ways_to_pick_a_score_give_the_same_bits() -> None:
    logits = draw_logits()
    np.testing.assert_array_equal(score_by_index(logits, LABELS), score_by_comparison(logits, LABELS))


@pytest.mark.parametrize("pick", [score_by_index, score_by_comparison])
def test_a_negative_label_gives_a_number(pick) -> None:  # type: ignore[no-untyped-def]
    assert np.isfinite(pick(draw_logits(), np.full_like(LABELS, -1))).all()
