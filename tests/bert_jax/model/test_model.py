"""The model against stored numbers of Hugging Face's, and the properties that BERT promises."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.model.dropout import Dropout
from bert_jax.model.encoder import Encoder
from bert_jax.model.feed_forward import activation
from bert_jax.model.heads import LanguageModelHead
from bert_jax.model.normalization import make_norm
from bert_jax.model.pretraining import BertForNextTokens, BertForPreTraining
from bert_jax.model_config import Attention, DType, ModelConfig
from tests.bert_jax.dropped_site import all_dropped_at
from tests.bert_jax.encoders import ENCODERS
from tests.bert_jax.reference_check import differences
from tests.bert_jax.small_run import random_params, trainable_params
from tests.bert_jax.tiny_model import TINY
from tests.golden.make_model_golden import CASES, GOLDEN


def make_batch(rows: int = 2, length: int = 10) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    ids = random.integers(5, TINY.vocab_size, (rows, length), dtype=np.int32)
    return {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": (np.arange(length) > length // 2).astype(np.int32) * np.ones_like(ids),
        "masked_lm_positions": np.tile(np.array([1, 4, 6], np.int32), (rows, 1)),
    }


@functools.cache
def init(config: ModelConfig) -> dict:
    model = BertForPreTraining(config)
    return jax.jit(functools.partial(model.init, deterministic=True))(jax.random.key(0), make_batch())[
        "params"
    ]


@functools.partial(jax.jit, static_argnums=0)
def apply(config: ModelConfig, params: dict, batch: dict) -> tuple[jax.Array, jax.Array]:
    kind = BertForNextTokens if config.attention == "causal" else BertForPreTraining
    return kind(config).apply({"params": params}, batch, deterministic=True)


@pytest.mark.parametrize("case", CASES)
def test_matches_stored_numbers_of_hugging_face(case: str) -> None:
    stored = np.load(GOLDEN)

    def part(prefix: str) -> dict[str, np.ndarray]:
        return {n.removeprefix(prefix): stored[n] for n in stored.files if n.startswith(prefix)}

    apart = differences(case, part("weights/"), part("batch/"), part(f"{case}/"))
    assert len(apart) > 40
    assert {name: d for name, d in apart.items() if not d < 1e-5} == {}


def test_left_to_right_gradient_from_the_future_is_exactly_zero() -> None:
    config = dataclasses.replace(TINY, attention="causal")
    encoder, batch = Encoder(config), make_batch(rows=1)
    params = init(config)["encoder"]
    position = 4

    def at_position(positions: jax.Array) -> jax.Array:
        # Each position has a row of this table to itself, so its gradient is that position's.
        changed = {**params["embeddings"], "position_embeddings": {"embedding": positions}}
        states = encoder.apply({"params": {**params, "embeddings": changed}}, batch, deterministic=True)
        return (states[0, position] * jnp.arange(config.hidden_size)).sum()

    table = params["embeddings"]["position_embeddings"]["embedding"]
    influence = np.abs(jax.jit(jax.grad(at_position))(table)).max(axis=1)
    assert (influence[position + 1 :] == 0).all()
    assert (influence[: position + 1] > 0).all()


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
def test_padding_never_changes_an_output(attention: Attention) -> None:
    config = dataclasses.replace(TINY, attention=attention)
    params, batch = init(config), make_batch()
    short = {**batch, "input_mask": batch["input_mask"].copy()}
    short["input_mask"][:, 7:] = 0
    other = {**short, "input_ids": short["input_ids"].copy(), "segment_ids": short["segment_ids"].copy()}
    other["input_ids"][:, 7:] = 3
    other["segment_ids"][:, 7:] = 0
    cut = {n: x if n == "masked_lm_positions" else x[:, :7] for n, x in batch.items()}
    lm, nsp = (np.asarray(x) for x in apply(config, params, short))
    lm_other, nsp_other = apply(config, params, other)
    lm_cut, nsp_cut = apply(config, params, cut)
    positions = lm_cut.shape[1]
    np.testing.assert_array_equal(lm[:, :positions], lm_other[:, :positions])
    np.testing.assert_array_equal(nsp, nsp_other)
    np.testing.assert_allclose(lm[:, :positions], lm_cut, atol=1e-6)
    np.testing.assert_allclose(nsp, nsp_cut, atol=1e-6)


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    x = jnp.full((1000, 100), 3.0)
    dropped = Dropout(0.1).apply({}, x, False, rngs={"dropout": jax.random.key(1)})
    # The share's standard deviation is 0.001, the mean's 0.003.
    assert abs(float((dropped == 0).mean()) - 0.1) < 0.004
    assert abs(float(dropped.mean()) - 3) < 0.013
    assert len(np.unique(dropped)) == 2
    for shift in (1, 2, 3):  # a word of random bits serves several elements, but no two rows are the same
        assert abs(float((dropped[shift:] == dropped[:-shift]).mean()) - 0.82) < 0.01
    np.testing.assert_array_equal(Dropout(0.1).apply({}, x, True), x)


def test_dropout_has_its_sites() -> None:
    """Dropping a sublayer's whole output has the same effect as setting its last parameters to zero."""
    config = dataclasses.replace(TINY, num_layers=2, dropout_rate=0.2, attention_dropout_rate=0.3)
    of_layer = {"attention/value": 0.3, "attention/output": 0.2, "output": 0.2}
    sites = {"embeddings/layer_norm": 0.2} | {
        f"layer_{i}/{part}": rate for i in range(2) for part, rate in of_layer.items()
    }
    batch, params = make_batch(), random_params(config)
    rates: list[float] = []

    @jax.jit
    def dropping(site: int) -> jax.Array:
        model, key = BertForPreTraining(config), {"dropout": jax.random.key(3)}
        with all_dropped_at(site) as used:
            logits, _ = model.apply({"params": params}, batch, deterministic=False, rngs=key)
        rates.extend(used)
        return logits

    whole = dropping(-1)
    assert rates == list(sites.values())
    flat = flatten_dict(params, sep="/")
    for number, part in enumerate(sites):
        own = [path for path in flat if path.startswith(f"encoder/{part}/")]
        without = flat | {path: np.zeros_like(flat[path]) for path in own}
        expected, _ = apply(config, unflatten_dict(without, sep="/"), batch)
        dropped = dropping(number)
        np.testing.assert_allclose(dropped, expected, atol=1e-5, err_msg=part)
        assert np.abs(dropped - whole).max() > 1e-3, part


def test_deterministic_turns_all_dropout_off() -> None:
    batch = make_batch()
    key = {"dropout": jax.random.key(3)}

    def states(deterministic: bool, **rates: float) -> np.ndarray:
        config = dataclasses.replace(TINY, **rates)
        apply = functools.partial(BertForPreTraining(config).apply, deterministic=deterministic)
        return np.asarray(jax.jit(apply)({"params": init(TINY)}, batch, rngs=key)[0])

    off = states(True, dropout_rate=0.5, attention_dropout_rate=0.5)
    np.testing.assert_array_equal(off, states(False, dropout_rate=0.0, attention_dropout_rate=0.0))
    assert np.abs(off - states(False, dropout_rate=0.5, attention_dropout_rate=0.5)).max() > 0.01


def test_initial_parameters() -> None:
    config = dataclasses.replace(TINY, vocab_size=2000, hidden_size=64, intermediate_size=256)
    # Cutting a normal at two deviations leaves 0.8796 of its deviation.
    expected = 0.02 * 0.8796
    for path, array in flatten_dict(init(config), sep="/").items():
        if path.endswith("bias"):
            assert not array.any(), path
        elif path.endswith("scale"):
            assert (array == 1).all(), path
        else:
            deviation = float(np.sqrt((np.asarray(array) ** 2).mean()))
            # Five deviations of the estimate: this normal's square has a kurtosis below 3.
            assert abs(deviation / expected - 1) < 5 / np.sqrt(2 * array.size), path
            assert np.abs(array).max() <= 0.04, path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer_norm_adds_its_epsilon_to_the_variance(dtype: DType) -> None:
    config = dataclasses.replace(TINY, dtype=dtype, layer_norm_epsilon=0.5)
    x = np.array([[-1.0, 1.0, 3.0, 5.0]], np.float32)  # of mean 2 and variance 5
    ours, _ = make_norm(config, "layer_norm").init_with_output(jax.random.key(0), x)
    np.testing.assert_allclose(ours.astype(np.float32), (x - 2) / np.sqrt(5.5), rtol=1e-2)


def test_gelu_flavours_differ_and_are_what_they_say() -> None:
    x = jnp.linspace(-4, 4, 81)
    exact = activation(dataclasses.replace(TINY, activation="gelu_exact"), x)
    tanh = activation(dataclasses.replace(TINY, activation="gelu_tanh"), x)
    cube = np.asarray(x, np.float64) + 0.044715 * np.asarray(x, np.float64) ** 3
    np.testing.assert_allclose(tanh, 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * cube)), atol=1e-6)
    np.testing.assert_allclose(exact, 0.5 * x * (1 + jax.scipy.special.erf(x / np.sqrt(2))), atol=1e-6)
    assert 1e-4 < float(jnp.abs(exact - tanh).max()) < 1e-3


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_parameters_and_logits() -> None:
    config = dataclasses.replace(TINY, dtype="bfloat16")
    params, batch = init(config), make_batch()
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    lm, nsp = apply(config, params, batch)
    assert (lm.dtype, nsp.dtype) == (jnp.float32, jnp.float32)
    encode = functools.partial(
        Encoder(config).apply, deterministic=True, method="hidden_states", mutable=["intermediates"]
    )
    seen = jax.eval_shape(encode, {"params": params["encoder"]}, batch)
    assert {x.dtype for x in jax.tree.leaves(seen)} == {jnp.dtype("bfloat16")}
    wide, _ = apply(TINY, params, batch)
    assert 0 < np.abs(lm - wide).max() < 0.05


def test_bfloat16_logits_are_added_up_in_float32() -> None:
    config = dataclasses.replace(TINY, dtype="bfloat16")
    params, states = init(config), jax.random.normal(jax.random.key(0), (2, 3, TINY.hidden_size))
    table = params["encoder"]["embeddings"]["word_embeddings"]["embedding"]
    # Not compiled: XLA may keep more precision than it is asked for. The bias is 0, so logits that
    # were added up in bfloat16 would all be bfloat16 numbers.
    logits = LanguageModelHead(config).apply({"params": params["language_model"]}, states, table[None])
    assert (logits != logits.astype(jnp.bfloat16).astype(jnp.float32)).any()


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_last_layer_at_some_positions_is_what_it_is_there(
    attention: Attention, packed: bool, encoder: str
) -> None:
    config = dataclasses.replace(TINY, num_layers=2, attention=attention, **ENCODERS[encoder])
    batch = make_batch()
    if packed:
        batch["instance_starts"] = np.array([[0, 6]] * 2, np.int32)
    positions = np.array([[7, 0, 3], [9, 9, 5]], np.int32)
    # Of a scale at which scores depend on positions.
    params = trainable_params(config)["encoder"]
    encode = functools.partial(Encoder(config).apply, {"params": params}, batch, True)
    expected = jnp.take_along_axis(encode(), positions[..., None], axis=1)
    np.testing.assert_allclose(encode(positions), expected, atol=1e-6)
    one = positions[:, :1]
    np.testing.assert_allclose(encode(one), expected[:, :1], atol=1e-6)


def test_the_output_bias_has_the_sum_of_the_gradients_of_all_positions() -> None:
    config = ModelConfig(vocab_size=11, hidden_size=4, num_heads=1, intermediate_size=4)
    random = np.random.default_rng(0)
    states, weights = random.normal(size=(2, 3, 4)), random.normal(size=(2, 3, 11))
    head, table = LanguageModelHead(config), jnp.asarray(random.normal(size=(1, 11, 4)))
    params = head.init(jax.random.key(0), states, table)["params"]
    gradients = jax.grad(lambda p: (head.apply({"params": p}, states, table) * weights).sum())(params)
    np.testing.assert_allclose(gradients["bias"], weights.sum((0, 1)), rtol=1e-5)
