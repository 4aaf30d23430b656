"""The span boundary objective: which tokens it predicts from, what its head computes, loss and metrics."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.cross_entropy import cross_entropy
from bert_jax.model.encoder import Encoder
from bert_jax.model.size import SPAN_POSITIONS
from bert_jax.model.span_boundary import span_ends
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLMAndSpanBoundary
from bert_jax.objectives.task import PretrainingTask
from experiments import EXPERIMENTS
from tests.bert_jax.model.test_packed_rows import make_batches
from tests.bert_jax.objectives.test_flops import compile_gradients
from tests.bert_jax.small_run import trainable_params
from tests.bert_jax.tiny_model import TINY

MODEL = dataclasses.replace(TINY, num_layers=2, dropout_rate=0.0, attention_dropout_rate=0.0)
LEARNS = MaskedLMAndSpanBoundary()
PARAMS = trainable_params(MODEL, LEARNS)
BATCH = make_batches()[0]


def ends_literally(positions: list[int]) -> list[tuple[int, int]]:
    """First and last position of the run that each position is part of."""
    ends = []
    for position in positions:
        first = last = position
        while first - 1 in positions:
            first -= 1
        while last + 1 in positions:
            last += 1
        ends.append((first, last))
    return ends


def test_spans_are_runs_of_adjacent_positions() -> None:
    random = np.random.default_rng(0)
    rows, slots = 50, 12
    positions, weights = np.zeros((rows, slots), np.int32), np.zeros((rows, slots), np.float32)
    expected = np.ones((rows, slots, 2), int)
    for row in range(rows):
        chosen = sorted(
            random.choice(np.arange(1, 20), random.integers(0, slots + 1), replace=False).tolist()
        )
        positions[row, : len(chosen)], weights[row, : len(chosen)] = chosen, 1
        expected[row, : len(chosen)] = np.reshape(ends_literally(chosen), (-1, 2))
    found = span_ends({"masked_lm_positions": positions, "masked_lm_weights": weights})
    np.testing.assert_array_equal(np.stack(found, axis=-1), expected)


def test_the_head_is_that_of_the_paper() -> None:
    """Section 3.2: two layers of GELU and LayerNorm on the states around the span and the position in it."""
    states = np.asarray(Encoder(MODEL).apply({"params": PARAMS["encoder"]}, BATCH, True))
    outputs = LEARNS.module(MODEL).apply({"params": PARAMS}, BATCH, deterministic=True)
    head, table = PARAMS["span_boundary"], PARAMS["encoder"]["embeddings"]["word_embeddings"]["embedding"]

    def layer(x: jax.Array, params: dict) -> jax.Array:
        x = nn.gelu(x @ params["dense"]["kernel"] + params["dense"]["bias"])
        norm = nn.LayerNorm(MODEL.layer_norm_epsilon)
        return norm.apply({"params": params["layer_norm"]}, x)

    for row, slot in zip(*np.nonzero(BATCH["masked_lm_weights"]), strict=True):
        used = BATCH["masked_lm_positions"][row][BATCH["masked_lm_weights"][row] > 0].tolist()
        first, last = ends_literally(used)[slot]
        place = head["positions"]["embedding"][used[slot] - first]
        h0 = jnp.concatenate([states[row, first - 1], states[row, last + 1], place])
        y = layer(layer(h0, head), head["language_model"])
        expected = table @ y + head["language_model"]["bias"]
        np.testing.assert_allclose(outputs.boundary_logits[row, slot], expected, rtol=1e-4, atol=1e-4)


def test_positions_beyond_the_table_share_the_last_one() -> None:
    length = SPAN_POSITIONS + 4
    ids = np.full((1, length), 7, np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    batch["masked_lm_positions"] = np.arange(1, length - 1)[None]
    batch["masked_lm_weights"] = np.ones((1, length - 2), np.float32)
    model = dataclasses.replace(MODEL, max_position_embeddings=length)
    params = trainable_params(model, LEARNS)
    logits = LEARNS.module(model).apply({"params": params}, batch, True).boundary_logits[0]
    last = np.asarray(logits[SPAN_POSITIONS - 1 :])
    np.testing.assert_allclose(last, np.broadcast_to(last[0], last.shape), rtol=1e-5, atol=1e-5)
    assert np.abs(logits[SPAN_POSITIONS - 2] - last[0]).max() > 0.1


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_the_loss_is_the_sum_of_both_means(z_loss: float) -> None:
    learns = MaskedLMAndSpanBoundary(z_loss=z_loss)
    outputs = learns.module(MODEL).apply({"params": PARAMS}, BATCH, deterministic=True)
    # Targets that the span boundary head always predicts, and the language model head seldom.
    batch = {**BATCH, "masked_lm_ids": outputs.boundary_logits.argmax(axis=-1)}
    used = batch["masked_lm_weights"] > 0
    expected, correct = 0.0, []
    for logits in outputs:
        losses, hits = cross_entropy(logits, batch["masked_lm_ids"])
        expected += losses[used].mean() + z_loss * (jax.nn.logsumexp(logits, axis=-1)[used] ** 2).mean()
        correct.append(float(hits[used].mean()))
    assert correct[0] < correct[1] == 1
    sums, totals = learns.numerators(outputs, batch), learns.denominators(batch)
    means = learns.means({name: float(value) for name, value in {**sums, **totals}.items()})
    assert float(learns.loss(sums, totals)) == pytest.approx(float(expected), rel=1e-5)
    assert means["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert [means["mlm_accuracy"], means["sbo_accuracy"]] == pytest.approx(correct)


def test_operations_are_those_that_the_compiler_counts() -> None:
    model = ModelConfig(50, 2, 512, 8, 1024, 96, embedding_size=256, dropout_rate=0, attention_dropout_rate=0)
    # A third as many predictions as positions: the last layer is then computed as often as positions are.
    length, slots = 96, 32
    shapes = {name: (length if "masked" not in name else slots) for name in LEARNS.batch_arrays}
    batch = {name: jax.ShapeDtypeStruct((2, size), np.int32) for name, size in shapes.items()}
    counted = compile_gradients(PretrainingTask(LEARNS, model), batch).cost_analysis()["flops"]
    assert counted == pytest.approx(2 * LEARNS.flops(model, length, slots, 1), rel=0.02)


def test_the_objective_sets_spans_and_one_text() -> None:
    base = EXPERIMENTS["base"].with_objective(LEARNS)
    assert (base.data.masking.unit, base.data.pairing) == ("span", "contiguous")
    full = EXPERIMENTS["roberta_base"].with_objective(LEARNS)
    assert full.data.pairing == "full_sentences"
