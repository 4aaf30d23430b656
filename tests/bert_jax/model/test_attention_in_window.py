"""Attention in a window, computed in blocks, is what all scores give with those outside the window hidden."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import model_config
from bert_jax.model import attention, threefry
from bert_jax.model.attention import (
    Projections,
    attend_fused,
    attend_in_window,
    attend_plainly,
    attention_bias,
)
from bert_jax.model.attention_tiling import step_of
from bert_jax.model.dropout import num_dropped
from bert_jax.model.encoder import Encoder
from bert_jax.model.size import num_scores
from bert_jax.model_config import ModelConfig
from bert_jax.task import Batch
from tests.bert_jax.encoders import ENCODERS

ROWS, HEADS, WIDTH = 2, 2, 8
KERNEL_WIDTH = 16
INTERPRET = jax.default_backend() != "tpu"


def normal(number: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(number), shape)


def projections_of(length: int, width: int) -> Projections:
    return tuple((normal(i, ROWS, length, HEADS, width), normal(3 + i, HEADS, width)) for i in range(3))


def value_and_gradients(
    attend: Callable[..., jax.Array], projections: Projections, bias: jax.Array, weights: jax.Array
) -> list[jax.Array]:
    """Of the sum of what attention without dropout gives, weighted."""

    @jax.jit
    @jax.value_and_grad
    def total(projections: Projections) -> jax.Array:
        return (attend(projections, bias, None, 0.0) * weights).sum()

    return jax.tree.leaves(total(projections))


def masks_of(length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Padding in the first row, three instances in the second, and a causal row."""
    columns = jnp.arange(length)
    starts = jnp.array([0, length // 3, length // 2 + 5])
    instances = jnp.where(columns[:, None] >= starts, starts, 0).max(axis=1)
    mask = columns < jnp.array([[length - 50], [length]])
    return mask, jnp.stack([0 * columns, instances]), jnp.array([[True], [False]]) & (columns >= 0)


@pytest.mark.parametrize("attention", ["bidirectional", "causal", "anticausal"])
@pytest.mark.parametrize(("window", "length"), [(5, 384), (64, 500), (70, 431)])
@pytest.mark.parametrize("kind", ["padded", "packed", "partly causal"])
def test_outputs_and_gradients_are_those_of_all_scores(
    attention: model_config.Attention, window: int, length: int, kind: str
) -> None:
    config = ModelConfig(attention=attention, attention_window=window)
    mask, instances, is_causal = masks_of(length)
    seen = (mask, instances if kind == "packed" else None, is_causal if kind == "partly causal" else None)
    block = config.attention_block(length)
    assert block is not None
    bias, block_bias = attention_bias(config, *seen), attention_bias(config, *seen, block)
    projections = projections_of(length, WIDTH)
    weights = normal(6, ROWS, length, HEADS, WIDTH) * mask[:, :, None, None]
    ours = value_and_gradients(attend_in_window, projections, block_bias, weights)
    expected = value_and_gradients(attend_plainly, projections, bias, weights)
    for array, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("window", "margin", "kind"), [(64, 64, "packed"), (100, 128, "padded")])
def test_the_kernel_computes_the_keys_near_a_query(window: int, margin: int, kind: str) -> None:
    length = 768
    step = step_of(HEADS, KERNEL_WIDTH, length, window)
    assert (step.queries, step.keys, step.margin) == (768, 128 + 2 * margin, margin)
    mask, instances, _ = masks_of(length)
    bias = attention_bias(ModelConfig(attention_window=window), mask, instances if kind == "packed" else None)
    projections = projections_of(length, KERNEL_WIDTH)
    weights = normal(6, ROWS, length, HEADS, KERNEL_WIDTH) * mask[:, :, None, None]
    fused = functools.partial(attend_fused, window=window, interpret=INTERPRET)
    ours = value_and_gradients(fused, projections, bias, weights)
    expected = value_and_gradients(attend_plainly, projections, bias, weights)
    for array, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=2e-4)


def test_chosen_columns_are_not_taken_for_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many columns as there are positions, in another order."""
    length = 768
    config = ModelConfig(
        vocab_size=50,
        num_layers=1,
        hidden_size=HEADS * KERNEL_WIDTH,
        num_heads=HEADS,
        intermediate_size=16,
        max_position_embeddings=length,
        attention_window=64,
        initializer_range=0.5,
        dtype="bfloat16",
    )
    ids = jax.random.randint(jax.random.key(0), (1, length), 0, 50)
    batch = {"input_ids": ids, "input_mask": jnp.ones_like(ids), "segment_ids": jnp.zeros_like(ids)}
    encoder = Encoder(config)
    params = encoder.init(jax.random.key(1), batch, True)
    expected = encoder.apply(params, batch, True)[:, ::-1]
    monkeypatch.setattr(attention, "attend_fused", functools.partial(attend_fused, interpret=INTERPRET))
    choose = jax.lax.platform_dependent
    monkeypatch.setattr(
        jax.lax,
        "platform_dependent",
        lambda *args, **ways: ways["tpu"](*args) if "tpu" in ways else choose(*args, **ways),
    )
    found = encoder.apply(params, batch, True, jnp.arange(length)[None, ::-1])
    np.testing.assert_allclose(found, expected, atol=0.1)


def test_the_kernel_drops_what_its_generator_says_of_each_tile() -> None:
    length, window, rate = 768, 64, 0.5
    keys = step_of(HEADS, KERNEL_WIDTH, length, window).keys
    mask, _, _ = masks_of(length)
    bias = attention_bias(ModelConfig(attention_window=window), mask)
    projections = projections_of(length, KERNEL_WIDTH)
    weights = normal(6, ROWS, length, HEADS, KERNEL_WIDTH) * mask[:, :, None, None]
    words = jax.random.bits(jax.random.key(3), (2,), jnp.uint32)

    def kept_of_row(row: int) -> jax.Array:
        """bool [N, T, Q]."""
        margin = (keys - 128) // 2
        kept = jnp.zeros((HEADS, length + 2 * margin, length), bool)
        for start in range(0, length, 128):
            draws = (jnp.uint32(row * HEADS), (HEADS, keys, 128), num_dropped(rate), jnp.uint32(start))
            near = (slice(None), slice(start, start + keys), slice(start, start + 128))
            kept = kept.at[near].set(threefry.keep(*words, *draws))
        return kept[:, margin:-margin]

    kept_BNTQ = jnp.stack([kept_of_row(row) for row in range(ROWS)])

    def plainly(projections: Projections, *_: object) -> jax.Array:
        q, k, v = ((product + offset).swapaxes(1, 2) for product, offset in projections)
        probabilities = jax.nn.softmax(attention.attention_scores(q, k, bias)) / (1 - rate)
        return jnp.einsum("bnqt,bntk->bqnk", jnp.where(kept_BNTQ.swapaxes(2, 3), probabilities, 0.0), v)

    def fused(projections: Projections, bias: jax.Array, *_: object) -> jax.Array:
        return attend_fused(projections, bias, jax.random.key(3), rate, window=window, interpret=INTERPRET)

    ours = value_and_gradients(fused, projections, bias, weights)
    expected = value_and_gradients(plainly, projections, bias, weights)
    for array, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=5e-4)


def batch_of(length: int) -> Batch:
    mask, instances, _ = masks_of(length)
    starts = jnp.array([[0, 0, 0], jnp.unique(instances[1], size=3)])
    ids = jax.random.randint(jax.random.key(1), mask.shape, 5, 60)
    return {
        "input_ids": ids,
        "input_mask": mask.astype(jnp.int32),
        "segment_ids": 0 * ids,
        "instance_starts": starts,
    }


@pytest.mark.slow
@pytest.mark.parametrize("columns", [None, jnp.array([[0, 7, 300], [380, 2, 2]])])
def test_an_encoder_computes_the_same_in_blocks(
    columns: jax.Array | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {**ENCODERS["modern"], "attention_window": 20, "global_every": 2}
    model = ModelConfig(
        vocab_size=64,
        num_layers=4,  # the last one has a window
        hidden_size=16,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=400,
        dtype="float32",
        **parts,
    )
    batch = batch_of(400)
    module = Encoder(model)
    params = module.init(jax.random.key(0), batch, True)
    in_blocks = module.apply(params, batch, True, columns)
    monkeypatch.setattr(ModelConfig, "attention_block", lambda self, length: None)
    of_all_scores = module.apply(params, batch, True, columns)
    real = batch["input_mask"] if columns is None else jnp.ones_like(columns)
    np.testing.assert_allclose(
        in_blocks * real[..., None], of_all_scores * real[..., None], rtol=1e-4, atol=1e-5
    )


def test_blocks_are_taken_where_they_save_half_of_the_scores() -> None:
    model = ModelConfig(attention_window=64, global_every=3)
    without, local = model.of_layer(0), model.of_layer(1)
    assert without.attention_block(4096) is None
    assert [local.attention_block(length) for length in (128, 383, 384)] == [None, None, 64]
    assert dataclasses.replace(local, attention_window=128).attention_block(1024) == 128
    assert [num_scores(local, length) for length in (128, 1024)] == [128**2, 1024 * 192]
