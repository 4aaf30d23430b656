"""Slower, frozen and combined layers: which parameters move, and what a head sees."""

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.config import ParallelConfig
from bert_jax.finetuning_config import Combination, FeatureConfig, FineTuningConfig, LayerRates
from bert_jax.formats.model_source import ModelSource
from bert_jax.model.encoder import Encoder
from bert_jax.model_config import Attention, ModelConfig
from bert_jax.studies.measuring import finetune_arguments
from bert_jax.tasks.ranking import InBatch, Triplet
from bert_jax.tasks.tagging import Tagging
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.train_step import init_state, predict_step, train_step
from data_pipeline.errors import UserError
from tests.bert_jax.drawn import draw_head
from tests.bert_jax.encoders import ENCODERS
from tests.bert_jax.tasks.heads import HEADS
from tests.bert_jax.tasks.small_batch import LABELS, MODEL, make_batch
from tests.bert_jax.tasks.small_rows import make_rows

TWO_LAYERS = dataclasses.replace(MODEL, num_layers=2)
CONFIG = FineTuningConfig(model=TWO_LAYERS, num_labels=LABELS)


LAST_LAYER = FeatureConfig()


def moved(
    rates: LayerRates,
    features: FeatureConfig = LAST_LAYER,
    kind: str = "tagging",
    model: ModelConfig = TWO_LAYERS,
) -> dict[str, float]:
    """The largest change in each part of the parameters after one step."""
    config = dataclasses.replace(CONFIG, model=model, rates=rates, features=features)
    task, tx = HEADS[kind](config), make_optimizer(dataclasses.replace(config.optimizer, weight_decay=0.1))
    shapes = jax.eval_shape(functools.partial(init_state, task, tx), 0)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    before = zeros.replace(params=draw_head(task), first_nonfinite_step=np.int32(-1))
    step = jax.jit(functools.partial(train_step, task=task, tx=tx))
    after = step(before, make_batch(kind), np.float32(1e-2), jax.random.key(0))
    changes: dict[str, float] = {}
    given = flatten_dict(before.params)
    for path, array in flatten_dict(after.params).items():
        part = path[1] if path[0] == "encoder" else path[0]
        changes[part] = max(changes.get(part, 0.0), float(np.abs(array - given[path]).max()))
    return changes


def test_frozen_layers_stay_exactly_as_they_are() -> None:
    changes = moved(LayerRates(frozen_layers=1))
    assert changes["embeddings"] == changes["layer_0"] == 0
    assert changes["layer_1"] > 1e-3
    assert changes["classifier"] > 1e-3


@pytest.mark.slow
def test_the_last_normalization_is_frozen_with_the_last_layer() -> None:
    model = dataclasses.replace(TWO_LAYERS, **ENCODERS["modern"])
    changes = moved(LayerRates(frozen_layers=1), model=model)
    assert {name for name, change in changes.items() if change} == {
        "layer_1",
        "final_layer_norm",
        "classifier",
    }
    frozen = moved(LayerRates(frozen_layers=2), model=model)
    assert [name for name, change in frozen.items() if change] == ["classifier"]


@pytest.mark.parametrize(("frozen", "share"), [(None, 1), (0, 1), (1, 4 / 6), (2, 2 / 6)])
def test_frozen_layers_have_no_backward_to_count(frozen: int | None, share: float) -> None:
    batch = make_batch("tagging")
    all_trained, task = (
        Tagging(dataclasses.replace(CONFIG, rates=LayerRates(frozen_layers=layers)))
        for layers in (None, frozen)
    )
    assert task.flops(batch) == pytest.approx(share * all_trained.flops(batch))


@pytest.mark.parametrize("combine", ["concat", "sum"])
def test_each_weight_of_the_bilstm_is_multiplied_once_for_a_token(combine: Combination) -> None:
    features = FeatureConfig(layers=(-1, -2), combine=combine, lstm_layers=2, lstm_width=4)
    task, batch = Tagging(dataclasses.replace(CONFIG, features=features)), make_batch("tagging")
    weights = sum(
        array.size
        for path, array in flatten_dict(draw_head(task)).items()
        if path[0].startswith("lstm_") and path[-1] == "kernel"
    )
    alone = task.flops(batch) - Tagging(CONFIG).flops(batch)
    assert alone == 3 * 2 * weights * batch["input_ids"].size


def test_lower_layers_learn_more_slowly() -> None:
    # Adam's first step has nearly the same size for every parameter.
    changes = moved(LayerRates(layer_decay=0.5))
    for upper, lower in (("classifier", "layer_1"), ("layer_1", "layer_0"), ("layer_0", "embeddings")):
        assert changes[lower] == pytest.approx(changes[upper] / 2, rel=0.1)


@pytest.mark.parametrize("kind", [pytest.param("tagging", marks=pytest.mark.slow), "classification"])
def test_features_alone_train_nothing_of_the_encoder(kind: str) -> None:
    features = FeatureConfig(layers=(-1, -2, 0), combine="weighted", lstm_layers=1, lstm_width=4)
    changes = moved(LayerRates(frozen_layers=2), features, kind)
    assert changes["embeddings"] == changes["layer_0"] == changes["layer_1"] == 0
    head = {"layer_weights", "lstm_0_forward", "lstm_0_backward", "classifier"}
    assert {part for part, change in changes.items() if change > 0} == head


def make(kind: str, config: FineTuningConfig) -> tuple[Any, Any]:
    """Parameters, and the compiled outputs of a batch."""
    task = HEADS[kind](config)
    init = functools.partial(task.module.init, deterministic=True)
    params = jax.jit(init)(jax.random.key(0), task.example_batch())["params"]
    return params, jax.jit(functools.partial(predict_step, task=task))


@pytest.mark.parametrize(
    ("kind", "combine"),
    [
        ("tagging", "concat"),
        pytest.param("choice", "weighted", marks=pytest.mark.slow),
        pytest.param("relation", "sum", marks=pytest.mark.slow),
        pytest.param("in_batch_ranking", "concat", marks=pytest.mark.slow),
    ],
)
def test_a_bilstm_does_not_see_padding(kind: str, combine: Combination) -> None:
    features = FeatureConfig(layers=(-1, -2), combine=combine, lstm_layers=1, lstm_width=4)
    params, predict = make(kind, dataclasses.replace(CONFIG, features=features))
    short, long = (make_batch(kind, length=length) for length in (8, 12))
    one, other = np.asarray(predict(params, short)), np.asarray(predict(params, long))
    if kind in ("tagging", "spans"):
        real = short["input_mask"] > 0
        one, other = one[real], other[:, :8][real]
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("attention", ["bidirectional", "causal", "anticausal"])
@pytest.mark.parametrize("lstm_layers", [0, 1])
def test_pooled_features_have_read_the_whole_text(attention: Attention, lstm_layers: int) -> None:
    features = FeatureConfig(layers=(-1, -2), lstm_layers=lstm_layers, lstm_width=4)
    model = dataclasses.replace(TWO_LAYERS, attention=attention)
    params, predict = make("classification", FineTuningConfig(model=model, num_labels=2, features=features))
    assert "pooler" not in params
    batch = make_batch("classification")
    last = batch["input_mask"].sum(-1) - 1
    for place in (np.zeros_like(last), last):
        other = {**batch, "input_ids": batch["input_ids"].copy()}
        other["input_ids"][np.arange(len(place)), place] += 1
        assert (np.abs(predict(params, batch) - predict(params, other)).max(-1) > 1e-5).all()


def test_each_direction_of_a_bilstm_is_taken_where_it_has_read_all() -> None:
    """Seen on the embeddings alone, which have not read other tokens yet."""
    features = FeatureConfig(layers=(0,), lstm_layers=1, lstm_width=4)
    params, predict = make("classification", dataclasses.replace(CONFIG, features=features))
    batch = make_batch("classification")
    last = batch["input_mask"].sum(-1) - 1
    for other_direction in (slice(0, 4), slice(4, 8)):
        kernel = np.array(params["classifier"]["kernel"])
        kernel[other_direction] = 0
        alone = {**params, "classifier": {**params["classifier"], "kernel": kernel}}
        for place in (np.zeros_like(last), np.full_like(last, 2), last):
            other = {**batch, "input_ids": batch["input_ids"].copy()}
            other["input_ids"][np.arange(len(place)), place] -= 1
            assert (np.abs(predict(alone, batch) - predict(alone, other)).max(-1) > 1e-6).all()


@pytest.mark.parametrize("combine", ["concat", "sum", "weighted"])
def test_layers_are_combined_by_their_formulas(combine: Combination) -> None:
    config = dataclasses.replace(CONFIG, features=FeatureConfig(layers=(0, 2), combine=combine))
    head, params = HEADS["tagging"](config), draw_head(HEADS["tagging"](config))
    batch = make_batch("tagging")
    states = Encoder(TWO_LAYERS).apply(
        {"params": params["encoder"]}, batch, deterministic=True, method="hidden_states"
    )
    chosen = [np.asarray(states[layer]) for layer in (0, 2)]
    combined = {"concat": np.concatenate(chosen, axis=-1), "sum": chosen[0] + chosen[1]}
    if combine == "weighted":
        params["layer_weights"] = {"weights": np.array([0.5, -1.0], np.float32), "scale": np.float32(1.7)}
        first = np.exp(0.5) / (np.exp(0.5) + np.exp(-1.0))
        combined["weighted"] = 1.7 * (first * chosen[0] + (1 - first) * chosen[1])
    expected = combined[combine] @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    found = head.module.apply({"params": params}, batch, deterministic=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="frozen_layers is 3; the model has 2 layers"):
        dataclasses.replace(CONFIG, rates=LayerRates(frozen_layers=3))
    with pytest.raises(UserError, match=r"layers names 3; the model has -3 to 2"):
        dataclasses.replace(CONFIG, features=FeatureConfig(layers=(3,)))
    with pytest.raises(UserError, match="layer_decay is 0"):
        LayerRates(layer_decay=0)


def test_a_ranking_without_wrong_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    triples = make_rows("in_batch_ranking")
    pairs = dataclasses.replace(triples, sequences_per_row=2)
    for size, parallel, smallest in (
        (1, ParallelConfig(), 2),
        (4, ParallelConfig(accumulation_steps=4), 8),
        (8, ParallelConfig(mode="pmap", accumulation_steps=2), 16),
    ):
        ranking = FineTuningConfig(global_batch_size=size, parallel=parallel)
        with pytest.raises(UserError, match=f"batch size is {size}; .* so make it {smallest} or more"):
            InBatch(ranking).check(pairs)
        InBatch(ranking).check(triples)
        Triplet(ranking).check(pairs)
        InBatch(dataclasses.replace(ranking, global_batch_size=smallest)).check(pairs)


def test_layers_that_share_parameters_have_one_rate() -> None:
    shared = dataclasses.replace(TWO_LAYERS, layer_groups=1)
    for rates in (LayerRates(layer_decay=0.8), LayerRates(frozen_layers=1)):
        with pytest.raises(UserError, match="layer_decay must be 1, and frozen_layers None, 0 or 2"):
            dataclasses.replace(CONFIG, model=shared, rates=rates)
    changes = moved(LayerRates(frozen_layers=2), model=shared)
    assert [part for part, change in changes.items() if change] == ["classifier"]


@pytest.mark.parametrize(
    ("task", "flags", "message"),
    [
        (
            "cola",
            {"features.combine": "mean"},
            "features.combine is 'mean'; valid: concat, sum, weighted, each",
        ),
        ("cola", {"features.layers": 3}, "features.layers is 3; it must be a tuple"),
        ("cola", {"grid": "no"}, "grid is 'no'; it must be"),
        ("cola", {"layer_decay": "0.8"}, "layer_decay is '0.8'; it must be a number"),
        ("cola", {"warmup_proportion": "0.1"}, "warmup_proportion is '0.1'; it must be a number"),
        ("cola", {"max_seq_length": "128"}, "max_seq_length is '128'; it must be a whole number"),
        ("classify", {"folds": "5"}, "folds is '5'; it must be a whole number"),
        ("squad", {"doc_stride": "64"}, "doc_stride is '64'; it must be a whole number"),
    ],
)
def test_a_setting_of_another_type_is_refused(task: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        finetune_arguments(task, flags, ModelSource(Path("model")), "data", Path("output"))
