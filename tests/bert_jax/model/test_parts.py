"""Every part that the settings of the encoder name has its row in each table that has to know of it, and
computes what its paper says."""

import dataclasses
import functools
import math
import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import AbstractMesh

from bert_jax import model_config
from bert_jax.config import OptimizerConfig
from bert_jax.formats import google_tf1
from bert_jax.formats.families.bert import BERT
from bert_jax.mesh import AXES
from bert_jax.model import positions, size
from bert_jax.model.attention import Attention, Context, attention_bias
from bert_jax.model.encoder import Encoder, Layer
from bert_jax.model.feed_forward import feed_forward
from bert_jax.model.heads import Pooler
from bert_jax.model.normalization import make_norm
from bert_jax.model.positions import SinusoidalPositions, rotate, rotation_of
from bert_jax.model_config import MODEL_PARTS, OPTIONAL_SIZES, ModelConfig
from bert_jax.objectives import MaskedLM
from bert_jax.objectives.task import PretrainingTask
from bert_jax.parallel.sharding import _spec
from bert_jax.training.optimizer import _decay_mask
from data_pipeline.errors import UserError
from tests.bert_jax.encoders import ENCODERS
from tests.bert_jax.small_run import random_params
from tests.bert_jax.tiny_model import TINY


@pytest.mark.parametrize(
    ("choices", "table"),
    [
        (model_config.Positions, positions.POSITIONS),
        (model_config.Positions, size.POSITION_ROWS),
        (model_config.FeedForward, size._FEED_FORWARD_KERNELS),
        (model_config.Normalization, size._HAS_BIAS),
        (model_config.FurtherNormalization, size._HEAD_NORMS),
        (model_config.NormalizationPlace, size._HAS_FINAL_NORM),
        (model_config.NormalizationPlace, size._HAS_INNER_NORMS),
    ],
)
def test_a_table_has_a_row_for_every_choice(choices: typing.Any, table: typing.Mapping) -> None:
    assert set(table) == set(typing.get_args(choices))


@pytest.mark.parametrize("setting", [*MODEL_PARTS, "activation"])
def test_the_encoders_of_the_tests_have_every_choice(setting: str) -> None:
    choices = typing.get_args(typing.get_type_hints(ModelConfig)[setting])
    assert {getattr(ModelConfig(**changes), setting) for changes in ENCODERS.values()} >= set(choices) - {
        "gelu_tanh"
    }


@pytest.mark.parametrize("name", ENCODERS)
def test_parameters_are_counted(name: str) -> None:
    model = dataclasses.replace(TINY, num_layers=3, **ENCODERS[name])
    shapes = PretrainingTask(MaskedLM(), model).abstract_params()
    assert MaskedLM().num_parameters(model) == sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


def test_a_pooler_may_be_the_transform_of_the_language_model_head() -> None:
    config = dataclasses.replace(TINY, pooler="transform", activation="relu")
    states = np.random.default_rng(0).normal(size=(3, config.hidden_size)).astype(np.float32)
    pooled, variables = Pooler(config).init_with_output(jax.random.key(0), states)
    dense = variables["params"]["dense"]
    x = np.maximum(states @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]), 0)
    normalized = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    np.testing.assert_allclose(pooled, normalized, atol=1e-5)


@pytest.mark.parametrize("name", ENCODERS)
def test_weights_alone_are_decayed(name: str) -> None:
    model = dataclasses.replace(TINY, num_layers=2, **ENCODERS[name])
    params = PretrainingTask(MaskedLM(), model).abstract_params()
    is_decayed = flatten_dict(_decay_mask(OptimizerConfig().decay_exclusions)(params))
    for path, decayed in is_decayed.items():
        assert decayed == (path[-1] in ("kernel", "embedding")), path


@pytest.mark.parametrize("name", ENCODERS)
def test_matrices_of_layers_are_split_over_a_mesh(name: str) -> None:
    model = dataclasses.replace(TINY, num_layers=2, **ENCODERS[name])
    params = flatten_dict(PretrainingTask(MaskedLM(), model).abstract_params()["encoder"])
    mesh = AbstractMesh((1, 2, 2), AXES)
    for path, leaf in params.items():
        if path[0].startswith("layer_") and path[-1] == "kernel":
            named = (axis for axis in _spec(mesh, path, leaf.shape) if axis)
            flat = {name for axis in named for name in ((axis,) if isinstance(axis, str) else axis)}
            assert flat == {"fsdp", "tensor"}, path


@pytest.mark.parametrize("name", ENCODERS)
def test_operations_are_those_that_the_compiler_counts(name: str) -> None:
    model = ModelConfig(50, 2, 1024, 16, 2048, 64, dropout_rate=0.0, attention_dropout_rate=0.0)
    model = dataclasses.replace(model, **ENCODERS[name])
    encoder, ids = Encoder(model), jnp.ones((2, 64), jnp.int32)
    batch = {"input_ids": ids, "input_mask": ids, "segment_ids": ids}
    params = jax.eval_shape(functools.partial(encoder.init, deterministic=True), jax.random.key(0), batch)

    def train(params: dict) -> dict:
        return jax.grad(lambda params: (encoder.apply(params, batch, True) ** 2).sum())(params)

    counted = jax.jit(train).lower(params).compile().cost_analysis()["flops"]
    # The compiler counts additions and the like too, which are a few in a thousand.
    assert counted == pytest.approx(2 * size.encoder_flops(model, 64), rel=0.01)


def turned(x: np.ndarray, place: float, base: float = 10_000.0) -> np.ndarray:
    """Vectors [..., K] as complex numbers whose parts are half of K apart, multiplied by e^(i angle)."""
    half = x.shape[-1] // 2
    angles = place * base ** (-np.arange(half) / half)
    product = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([product.real, product.imag], axis=-1)


def test_rotary_positions_turn_pairs_of_places() -> None:
    model = dataclasses.replace(TINY, positions="rotary", rotary_base=50.0)
    random = np.random.default_rng(0)
    product, bias = random.normal(size=(2, 5, 3, 8)), random.normal(size=(3, 8))
    places = np.array([[0, 1, 2, 7, 300], [4, 3, 2, 1, 0]])
    projection = (jnp.asarray(product), jnp.asarray(bias))
    ours, no_bias = rotate(projection, jnp.asarray(places), rotation_of(model, 301))
    expected = [
        [turned(product[b, t] + bias, places[b, t], 50.0) for t in range(5)] for b in range(len(places))
    ]
    np.testing.assert_allclose(ours, expected, atol=1e-4)
    assert no_bias is None


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    model = dataclasses.replace(TINY, positions="rotary")
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(1, 1, 1, 8)) for _ in range(2))

    def score(at: int, seen: int) -> float:
        (q, _), (k, _) = (
            rotate((jnp.asarray(x), jnp.zeros((1, 8))), jnp.array([place]), rotation_of(model, 13))
            for x, place in ((query, at), (key, seen))
        )
        return float((q * k).sum())

    assert score(3, 1) == pytest.approx(score(12, 10), abs=1e-4)
    assert abs(score(3, 1) - score(1, 3)) > 0.01


def test_a_program_does_not_compute_the_cosines_of_rotary_positions() -> None:
    # On a CPU, XLA would compute them for every element of queries and keys: a tenth of a small model's step.
    encoder = Encoder(dataclasses.replace(TINY, positions="rotary"))
    ids = jnp.ones((2, 8), jnp.int32)
    starts = jnp.tile(jnp.array([0, 5]), (2, 1))
    batch = {"input_ids": ids, "input_mask": ids, "segment_ids": ids, "instance_starts": starts}
    params = jax.eval_shape(functools.partial(encoder.init, deterministic=True), jax.random.key(0), batch)
    program = jax.jit(lambda params: encoder.apply(params, batch, True)).lower(params).as_text()
    assert "cosine" not in program


def test_sinusoidal_positions_are_those_of_the_paper() -> None:
    ours = SinusoidalPositions(TINY).apply({}, jnp.arange(9))
    for place in range(9):
        for i in range(TINY.hidden_size // 2):
            angle = place / 10_000 ** (2 * i / TINY.hidden_size)
            expected = 0.02 * np.array([math.sin(angle), math.cos(angle)])
            np.testing.assert_allclose(ours[place, 2 * i : 2 * i + 2], expected, atol=1e-6)


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    model = dataclasses.replace(TINY, normalization="rms_norm", layer_norm_epsilon=0.5)
    x = np.array([[-1.0, 1.0, 3.0, 5.0]], np.float32)  # of mean square 9
    ours, params = make_norm(model, "layer_norm").init_with_output(jax.random.key(0), x)
    np.testing.assert_allclose(ours, x / np.sqrt(9.5), rtol=1e-6)
    assert list(params["params"]) == ["scale"]


@pytest.mark.parametrize(
    ("kind", "bend"),
    [
        ("geglu", lambda x: x * 0.5 * (1 + jax.scipy.special.erf(x / 2**0.5))),
        ("swiglu", lambda x: x / (1 + jnp.exp(-x))),
    ],
)
def test_a_gate_multiplies(kind: model_config.FeedForward, bend: typing.Callable) -> None:
    model = dataclasses.replace(TINY, feed_forward=kind, activation="gelu_exact")
    params = random_params(model)["encoder"]["layer_0"]
    x = np.random.default_rng(0).normal(size=(2, 3, TINY.hidden_size)).astype(np.float32)

    class Scope(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return feed_forward(model, x)

    own = {name: params[name] for name in ("gate", "intermediate", "output")}
    gate, wide = (x @ own[name]["kernel"] + own[name]["bias"] for name in ("gate", "intermediate"))
    expected = (bend(gate) * wide) @ own["output"]["kernel"] + own["output"]["bias"]
    np.testing.assert_allclose(Scope().apply({"params": own}, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", typing.get_args(model_config.Attention))
@pytest.mark.parametrize("packed", [False, True])
def test_a_window_hides_what_is_further_away(attention: model_config.Attention, packed: bool) -> None:
    model = dataclasses.replace(TINY, attention=attention, attention_window=2)
    mask = np.ones((1, 9), np.int32)
    mask[0, 8] = 0
    instances = np.array([[0, 0, 0, 0, 4, 4, 4, 4, 4]])
    bias = attention_bias(model, jnp.asarray(mask), jnp.asarray(instances) if packed else None)
    for at in range(9):
        for seen in range(9):
            hidden = abs(at - seen) > 2 or seen == 8
            hidden |= attention == "causal" and seen > at
            hidden |= attention == "anticausal" and seen < at
            hidden |= packed and instances[0, at] != instances[0, seen]
            assert float(bias[0, 0, at, seen]) == (-10000.0 if hidden else 0.0)


def test_every_so_many_layers_see_all() -> None:
    model = dataclasses.replace(TINY, num_layers=5, **ENCODERS["modern"])
    layers = [dataclasses.replace(model, global_every=3).of_layer(i) for i in range(5)]
    assert [layer.attention_window for layer in layers] == [None, 2, 2, None, 2]
    assert [layer.rotary_base for layer in layers] == [160_000.0, 100.0, 100.0, 160_000.0, 100.0]
    without = dataclasses.replace(model, global_every=None, rotary_base_local=None)
    assert {without.of_layer(i).attention_window for i in range(5)} == {2}
    assert {without.of_layer(i).rotary_base for i in range(5)} == {160_000.0}


def test_groups_of_layers_share_their_parameters_in_order() -> None:
    model = dataclasses.replace(TINY, num_layers=4, layer_groups=2, dropout_rate=0.0)
    shared = random_params(model)["encoder"]
    assert [name for name in shared if name.startswith("layer_")] == ["layer_0", "layer_1"]
    apart = {name: value for name, value in shared.items() if not name.startswith("layer_")}
    apart |= {f"layer_{i}": shared[f"layer_{i // 2}"] for i in range(4)}
    ids = jnp.arange(10).reshape(2, 5)
    batch = {"input_ids": ids, "input_mask": jnp.ones_like(ids), "segment_ids": jnp.zeros_like(ids)}
    of_own = dataclasses.replace(model, layer_groups=None)
    states, expected = (
        Encoder(config).apply({"params": params}, batch, True, method="hidden_states")
        for config, params in ((model, shared), (of_own, apart))
    )
    assert len(states) == 5
    jax.tree.map(np.testing.assert_array_equal, states, expected)


@pytest.mark.parametrize("changes", [{"embedding_size": 8}, {"layer_groups": 1}])
def test_the_first_layer_keeps_its_normalization_where_none_stands_for_it(changes: dict) -> None:
    model = dataclasses.replace(TINY, num_layers=2, normalization_place="pre", **changes)
    assert "attention_layer_norm" in random_params(model)["encoder"]["layer_0"]


def test_narrow_embeddings_are_normalized_and_then_widened() -> None:
    model = dataclasses.replace(TINY, embedding_size=6)
    params = random_params(model)
    encoder, ids = params["encoder"], np.arange(5)[None]
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    tables = encoder["embeddings"]
    total = sum(
        tables[f"{name}_embeddings"]["embedding"][rows]
        for name, rows in (("word", ids), ("position", ids), ("segment", 0 * ids))
    )
    deviation = total - total.mean(-1, keepdims=True)
    normal = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True))
    narrow = normal * tables["layer_norm"]["scale"] + tables["layer_norm"]["bias"]
    project = encoder["embeddings_project"]
    states = Encoder(model).apply({"params": encoder}, batch, True, method="hidden_states")
    np.testing.assert_allclose(states[0], narrow @ project["kernel"] + project["bias"], rtol=1e-5, atol=1e-5)
    assert params["language_model"]["dense"]["kernel"].shape == (TINY.hidden_size, 6)


def test_pre_normalizes_before_each_sublayer_and_at_the_end() -> None:
    model = dataclasses.replace(TINY, num_layers=2, normalization_place="pre")
    norms = {
        f"{place}/{name}"
        for place, params in [*random_params(model)["encoder"].items()]
        for name in params
        if "layer_norm" in name
    }
    of_layers = {f"layer_{i}/{name}_layer_norm" for i in range(2) for name in ("attention", "output")}
    assert norms == {"embeddings/layer_norm"} | of_layers - {"layer_0/attention_layer_norm"}
    plain = dataclasses.replace(model, embedding_normalization="none")
    names = random_params(plain)["encoder"]
    assert "layer_norm" not in names["embeddings"]
    assert "attention_layer_norm" in names["layer_0"]
    assert "final_layer_norm" in names


def test_normformer_normalizes_what_attention_gives_and_before_the_last_product() -> None:
    model = dataclasses.replace(TINY, normalization_place="normformer", activation="relu")
    params = random_params(model)["encoder"]["layer_0"]
    x = np.random.default_rng(0).normal(size=(2, 3, TINY.hidden_size)).astype(np.float32)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        deviation = x - x.mean(-1, keepdims=True)
        scaled = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True))
        return scaled * params[name]["scale"] + params[name]["bias"]

    context = Context(jnp.zeros((2, 1, 1, 3)), jnp.arange(3), jnp.arange(3))
    attended = Attention(model).apply({"params": params["attention"]}, x, x, context, True)
    between = x + norm(np.asarray(attended), "attended_layer_norm")
    wide = norm(between, "output_layer_norm") @ params["intermediate"]["kernel"]
    wide = norm(np.maximum(wide + params["intermediate"]["bias"], 0), "intermediate_layer_norm")
    expected = between + wide @ params["output"]["kernel"] + params["output"]["bias"]
    ours = Layer(model, has_normalized_input=True).apply({"params": params}, x, x, context, True)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": "rotary", "hidden_size": 10}, "rotary needs heads of an even width; .* is 5"),
        ({"positions": "sinusoidal", "hidden_size": 9, "num_heads": 3}, "needs an even model.hidden_size"),
        ({"rotary_base": 0.0}, "model.rotary_base is 0; it must be above 0"),
        ({"rotary_base_local": 5.0}, "needs model.positions rotary and model.attention_window"),
        ({"global_every": 3}, "model.global_every needs model.attention_window"),
        ({"attention_window": 0}, "model.attention_window is 0"),
        ({"feed_forward": "geglu", "activation": "relu"}, "geglu has model.activation gelu_tanh or"),
        ({"embedding_size": 0}, "model.embedding_size is 0; it must be at least 1"),
        ({"positions": "sinusoidal", "embedding_size": 7}, "an even model.embedding_size; it is 7"),
        (
            {"num_layers": 6, "layer_groups": 4},
            r"model.layer_groups \(4\) does not divide model.num_layers \(6\); valid: 1, 2, 3, 6",
        ),
        (
            {"layer_groups": 1, "attention_window": 2, "global_every": 3},
            "model.global_every makes layers differ, and with model.layer_groups they are the same",
        ),
    ],
)
def test_impossible_parts_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataclasses.replace(TINY, **settings)


@pytest.mark.parametrize("entries", [BERT.entries, google_tf1.entries])
@pytest.mark.parametrize("part", MODEL_PARTS)
def test_a_part_that_a_format_lacks_is_refused_by_name(entries: typing.Callable, part: str) -> None:
    config = ModelConfig()
    object.__setattr__(config, part, "other")  # as a part will be that is added and that no table knows yet
    with pytest.raises(UserError, match=f"has no BERT with {part} other, only .*; `bert-jax convert"):
        entries(config)


def test_a_setting_that_a_family_cannot_describe_is_refused_by_name() -> None:
    told = {ours: theirs for ours, theirs in BERT.settings.items() if ours != "layer_norm_epsilon"}
    family = dataclasses.replace(BERT, settings=told)  # as if the setting had been added and forgotten here
    ids = {"pad": 0, "cls": 1, "sep": 2}
    assert family.write_config(ModelConfig(), ids)["hidden_size"] == 768
    with pytest.raises(UserError, match=r"transformers' BERT has no model with layer_norm_epsilon 1e-05"):
        family.write_config(ModelConfig(layer_norm_epsilon=1e-5), ids)


PARTS = sorted(
    {
        part
        for encoder in ENCODERS.values()
        for part in encoder.items()
        if part[0] in (*MODEL_PARTS, *OPTIONAL_SIZES, "attention_window")
    },
    key=str,
)


@pytest.mark.parametrize("entries", [BERT.entries, google_tf1.entries])
@pytest.mark.parametrize(("name", "value"), PARTS)
def test_each_part_of_an_encoder_that_a_format_lacks_is_refused(
    entries: typing.Callable, name: str, value: object
) -> None:
    with pytest.raises(UserError, match=f"has no BERT with {name} {value}, only"):
        entries(dataclasses.replace(ModelConfig(), **{name: value}))


def test_google_has_no_activation_but_gelu() -> None:
    with pytest.raises(UserError, match="has no BERT with activation relu, only gelu_tanh, gelu_exact"):
        google_tf1.entries(dataclasses.replace(ModelConfig(), activation="relu"))
