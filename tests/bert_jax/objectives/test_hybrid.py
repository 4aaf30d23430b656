"""Causal and masked sequences in one batch: what each sees, what is predicted, how often each occurs."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from bert_jax.cross_entropy import cross_entropy
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import LanguageModelHead
from bert_jax.model.sampling import choose_sequences
from bert_jax.objectives import HybridLanguageModel
from bert_jax.objectives.task import PretrainingTask
from data_pipeline.errors import UserError
from tests.bert_jax.model.test_packed_rows import make_batches
from tests.bert_jax.small_run import trainable_params
from tests.bert_jax.tiny_model import TINY
from tests.data_pipeline.unmasked import unmasked_ids

MODEL = dataclasses.replace(TINY, num_layers=2, dropout_rate=0.0, attention_dropout_rate=0.0)
HYBRID = HybridLanguageModel(causal_fraction=0.4)
PARAMS = trainable_params(MODEL, HYBRID)
BATCH = make_batches()[0]
IS_CAUSAL = np.asarray(choose_sequences(BATCH, 0.4))[:, 0]


@jax.jit
def outputs() -> jax.Array:
    return PretrainingTask(HYBRID, MODEL).module.apply({"params": PARAMS}, BATCH, deterministic=True)


def test_as_many_sequences_are_causal_as_asked_for() -> None:
    ids = np.random.default_rng(0).integers(0, 1000, (4000, 6))
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    chosen = np.asarray(choose_sequences(batch, 0.3))
    assert (chosen == chosen[:, :1]).all()
    assert abs(chosen[:, 0].mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)


def test_causal_rows_are_those_of_a_causal_model_and_others_of_a_masked_one() -> None:
    assert 0 < IS_CAUSAL.sum() < len(IS_CAUSAL)
    table = PARAMS["encoder"]["embeddings"]["word_embeddings"]["embedding"]
    for attention, ids, rows in (
        ("causal", unmasked_ids(BATCH), IS_CAUSAL),
        ("bidirectional", BATCH["input_ids"], ~IS_CAUSAL),
    ):
        config = dataclasses.replace(MODEL, attention=attention)
        encode = jax.jit(functools.partial(Encoder(config).apply, deterministic=True))
        head = LanguageModelHead(config).apply
        states = encode({"params": PARAMS["encoder"]}, {**BATCH, "input_ids": ids})
        logits = head({"params": PARAMS["next_token"]}, states[:, :-1], table[None])
        np.testing.assert_allclose(outputs()[rows], logits[rows], rtol=1e-4, atol=1e-4)


def test_sums_and_loss_are_those_of_a_loop() -> None:
    logits, ids = outputs(), unmasked_ids(BATCH)
    losses, correct = map(np.asarray, cross_entropy(logits, ids[:, 1:]))
    expected = dict.fromkeys(
        [f"{kind}_{name}" for kind in ("lm", "mlm") for name in ("loss", "correct", "weight")], 0.0
    )
    for row, is_causal in enumerate(IS_CAUSAL):
        masked = BATCH["masked_lm_positions"][row][BATCH["masked_lm_weights"][row] > 0]
        columns = range(1, BATCH["input_mask"][row].sum()) if is_causal else masked
        for column in columns:
            kind = "lm" if is_causal else "mlm"
            expected[f"{kind}_loss"] += losses[row, column - 1]
            expected[f"{kind}_correct"] += correct[row, column - 1]
            expected[f"{kind}_weight"] += 1
    totals = HYBRID.denominators(BATCH)
    sums = HYBRID.numerators(logits, BATCH)
    for name, value in expected.items():
        np.testing.assert_allclose({**sums, **totals}[name], value, rtol=1e-5, err_msg=name)
    means = HYBRID.means({name: float(value) for name, value in {**sums, **totals}.items()})
    causal, masked = (expected[f"{kind}_loss"] / expected[f"{kind}_weight"] for kind in ("lm", "mlm"))
    assert means["loss"] == pytest.approx(0.4 * causal + 0.6 * masked, rel=1e-5)
    assert float(HYBRID.loss(sums, totals)) == pytest.approx(means["loss"], rel=1e-4)
    labels, counted = HYBRID.predicted(BATCH)["mlm_accuracy"]
    assert counted.sum() == expected["mlm_weight"]
    assert sorted(labels[counted]) == sorted(
        BATCH["masked_lm_ids"][~IS_CAUSAL][BATCH["masked_lm_weights"][~IS_CAUSAL] > 0]
    )


@pytest.mark.parametrize("fraction", [0.0, 1.0, float("nan")])
def test_a_fraction_that_leaves_one_out_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match=r"causal_fraction is .*; it must be above 0 and below 1"):
        HybridLanguageModel(causal_fraction=fraction)
