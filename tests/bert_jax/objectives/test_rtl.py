"""Right to left is left to right on reversed text."""

import dataclasses
import itertools

import jax
import numpy as np

from bert_jax.objectives import LeftToRight, RightToLeft
from bert_jax.objectives.task import PretrainingTask
from tests.bert_jax.model.test_packed_rows import Batch, make_batches, sums_and_gradient
from tests.bert_jax.small_run import trainable_params
from tests.bert_jax.tiny_model import TINY

# Without positions, as those of reversed text count from its other end.
MODEL = dataclasses.replace(
    TINY, num_layers=2, positions="none", dropout_rate=0.0, attention_dropout_rate=0.0
)
PARAMS = trainable_params(MODEL, LeftToRight())


def reverse_instances(batch: Batch) -> Batch:
    """The tokens of each instance of packed rows in the other order, in the same columns."""
    reversed_ = {**batch, **{name: batch[name].copy() for name in ("input_ids", "segment_ids")}}
    for row, starts in enumerate(batch["instance_starts"]):
        bounds = [*starts[: np.count_nonzero(starts) + 1], batch["input_mask"][row].sum()]
        for start, stop in itertools.pairwise(bounds):
            for name in ("input_ids", "segment_ids"):
                reversed_[name][row, start:stop] = batch[name][row, start:stop][::-1]
    return reversed_


def test_right_to_left_is_left_to_right_on_reversed_text() -> None:
    batch = make_batches()[1]
    (expected, of_ltr), (found, of_rtl) = (
        sums_and_gradient(
            PretrainingTask(learns, dataclasses.replace(MODEL, attention=learns.attention)), PARAMS, text
        )
        for learns, text in ((LeftToRight(), reverse_instances(batch)), (RightToLeft(), batch))
    )
    assert found["lm_weight"] == batch["input_mask"].sum() - 8  # all tokens but the last of each instance
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), of_rtl, of_ltr)


def test_the_labels_are_the_tokens_to_the_left() -> None:
    batch = make_batches()[0]
    labels, counted = RightToLeft().predicted(batch)["lm_accuracy"]
    for row, length in enumerate(batch["input_mask"].sum(axis=1)):
        assert labels[row][counted[row]].tolist() == batch["input_ids"][row, : length - 1].tolist()
