"""Two directions in one model are what two models of one direction are, side by side."""

import dataclasses
import functools
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax import load_model
from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig, LayerRates
from bert_jax.model.encoder import STACKS, Encoder
from bert_jax.model.heads import LanguageModelHead
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import LeftToRightAndRightToLeft
from bert_jax.objectives.task import PretrainingTask
from bert_jax.tasks.finetuning.features import pooled_features
from data_pipeline.errors import UserError
from tests.bert_jax.drawn import draw_params
from tests.bert_jax.model.test_packed_rows import make_batches
from tests.bert_jax.small_run import make_run, trainable_params
from tests.bert_jax.tiny_model import TINY

MODEL = dataclasses.replace(
    TINY, num_layers=2, attention="joined", dropout_rate=0.0, attention_dropout_rate=0.0
)
OBJECTIVE = LeftToRightAndRightToLeft()
TASK = PretrainingTask(OBJECTIVE, MODEL)
PARAMS = trainable_params(MODEL, OBJECTIVE)
ROWS, PACKED = make_batches()


def each_alone(encoder: dict, batch: dict) -> list[np.ndarray]:
    """The states of a model of each direction, with the embeddings that they share."""
    states = []
    for name, config in zip(STACKS, MODEL.stacks, strict=True):
        encode = jax.jit(functools.partial(Encoder(config).apply, deterministic=True))
        params = {**encoder[name], "embeddings": encoder["embeddings"]}
        states.append(np.asarray(encode({"params": params}, batch)))
    return states


@pytest.mark.parametrize("batch", [ROWS, PACKED], ids=["rows", "packed"])
def test_logits_are_those_of_a_model_for_each_direction(batch: dict) -> None:
    found = np.asarray(jax.jit(TASK.module.apply, static_argnums=2)({"params": PARAMS}, batch, True))
    left, right = each_alone(PARAMS["encoder"], batch)
    table = PARAMS["encoder"]["embeddings"]["word_embeddings"]["embedding"]
    head = functools.partial(
        LanguageModelHead(MODEL.stacks[0]).apply,
        {"params": PARAMS["neighbour_token"]},
        embeddings_NVE=table[None],
    )
    expected = np.concatenate([head(left[:, :-1]), head(right[:, 1:])], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_labels_are_the_tokens_after_and_before() -> None:
    labels, counted = OBJECTIVE.predicted(ROWS)["lm_accuracy"]
    for row, length in enumerate(ROWS["input_mask"].sum(axis=1)):
        text = ROWS["input_ids"][row, :length].tolist()
        assert labels[row][counted[row]].tolist() == [*text[1:], *text[:-1]]


class Pooled(nn.Module):
    config: FineTuningConfig

    @nn.compact
    def __call__(self, batch: dict) -> jax.Array:
        return pooled_features(self.config, batch, deterministic=True)


@pytest.mark.parametrize(
    "features", [FeatureConfig(), FeatureConfig(layers=(-1, 0))], ids=["last_layer", "several_layers"]
)
def test_sequences_are_pooled_where_each_direction_has_seen_all(features: FeatureConfig) -> None:
    module = Pooled(FineTuningConfig(model=MODEL, features=features))
    params = draw_params(jax.eval_shape(module.init, jax.random.key(0), ROWS)["params"])
    found = np.asarray(jax.jit(module.apply)({"params": params}, ROWS))
    left, right = each_alone(params["encoder"], ROWS)
    rows, last = np.arange(len(left)), ROWS["input_mask"].sum(axis=1) - 1
    expected = np.concatenate([left[rows, last], right[:, 0]], axis=-1)
    if "pooler" in params:
        dense = params["pooler"]["dense"]
        expected = np.tanh(expected @ dense["kernel"] + dense["bias"])
    np.testing.assert_allclose(found[:, : MODEL.hidden_size], expected, rtol=1e-4, atol=1e-4)
    assert found.shape[-1] == MODEL.hidden_size * len(features.layers)


def test_attention_maps_have_the_heads_of_one_direction_and_then_of_the_other(tmp_path: Path) -> None:
    make_run(tmp_path / "run", objective="ltr_rtl")
    encoded = load_model(tmp_path / "run").encode(["the cat sat"], ("attention_maps",))
    (maps,) = encoded.attention_maps
    left, right = np.split(maps, 2, axis=1)
    assert left.shape[0] == 2
    np.testing.assert_array_equal(left, np.tril(left))
    np.testing.assert_array_equal(right, np.triu(right))
    np.testing.assert_allclose(maps.sum(axis=-1), 1, atol=1e-5)


def test_layers_of_both_directions_learn_at_the_rate_of_their_depth() -> None:
    rates = LayerRates(layer_decay=0.5, frozen_layers=1)
    for name in STACKS:
        scales = [rates.scale(("encoder", name, f"layer_{i}", "output", "kernel"), 3) for i in range(3)]
        assert scales == [0.0, 0.25, 0.5]


@pytest.mark.parametrize(
    ("setting", "value"), [("num_heads", 1), ("intermediate_size", 33), ("hidden_size", 3)]
)
def test_what_cannot_be_halved_is_refused(setting: str, value: int) -> None:
    shape = {"num_heads": 1} if setting == "hidden_size" else {}
    with pytest.raises(UserError, match=rf"joined needs an even model.(num_heads|{setting}); it is"):
        ModelConfig(**{"attention": "joined", "hidden_size": 4, "num_heads": 2, **shape, setting: value})
