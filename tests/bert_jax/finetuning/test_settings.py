"""Slower, frozen and combined layers: which parameters move, and what a head sees."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.finetuning.config import FineTuning, make_task
from bert_jax.finetuning.settings import FeatureConfig, LayerRates
from bert_jax.optimizer import make_optimizer
from bert_jax.train_step import init_state, predict_step, train_step
from data_pipeline.errors import UserError
from tests.bert_jax.finetuning.test_tasks import LABELS, MODEL, make_batch

TWO_LAYERS = dataclasses.replace(MODEL, num_layers=2)
CONFIG = FineTuning(kind="tagging", model=TWO_LAYERS, num_labels=LABELS)


LAST_LAYER = FeatureConfig()


def moved(rates: LayerRates, features: FeatureConfig = LAST_LAYER) -> dict[str, float]:
    """The largest change of each part of the parameters in one step of the same size for all."""
    config = dataclasses.replace(CONFIG, rates=rates, features=features)
    task, tx = make_task(config), make_optimizer(dataclasses.replace(config.optimizer, weight_decay=0.1))
    before = jax.jit(functools.partial(init_state, task, tx))(0)
    step = jax.jit(functools.partial(train_step, task=task, tx=tx))
    after = step(before, make_batch("tagging"), np.float32(1e-2), jax.random.key(0))
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


def test_lower_layers_learn_more_slowly() -> None:
    # Adam's first step is of nearly the same size for every parameter.
    changes = moved(LayerRates(layer_decay=0.5))
    for upper, lower in (("classifier", "layer_1"), ("layer_1", "layer_0"), ("layer_0", "embeddings")):
        assert changes[lower] == pytest.approx(changes[upper] / 2, rel=0.1)


def test_features_alone_train_nothing_of_the_encoder() -> None:
    features = FeatureConfig(layers=(-1, -2, 0), combine="weighted", lstm_layers=1, lstm_width=4)
    changes = moved(LayerRates(frozen_layers=2), features)
    assert changes["embeddings"] == changes["layer_0"] == changes["layer_1"] == 0
    assert {part for part, change in changes.items() if change > 0} >= {"layer_weights", "classifier"}
    assert any(change > 0 for part, change in changes.items() if part.startswith("lstm_0"))


@pytest.mark.parametrize("combine", ["concat", "sum", "weighted"])
def test_a_bilstm_does_not_see_padding(combine: str) -> None:
    features = FeatureConfig(layers=(-1, -2), combine=combine, lstm_layers=1, lstm_width=4)  # type: ignore[arg-type]
    task = make_task(dataclasses.replace(CONFIG, features=features))
    init = functools.partial(task.module.init, deterministic=True)
    params = jax.jit(init)(jax.random.key(0), task.example_batch())["params"]
    predict = jax.jit(functools.partial(predict_step, task=task))
    short, long = (make_batch("tagging", length=length) for length in (8, 12))
    real = short["input_mask"] > 0
    one, other = predict(params, short), predict(params, long)[:, :8]
    np.testing.assert_allclose(one[real], other[real], atol=1e-6)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="frozen_layers is 3; the model has 2 layers"):
        dataclasses.replace(CONFIG, rates=LayerRates(frozen_layers=3))
    with pytest.raises(UserError, match=r"layers names 3; the model has -3 to 2"):
        dataclasses.replace(CONFIG, features=FeatureConfig(layers=(3,)))
    with pytest.raises(UserError, match="layer_decay is 0"):
        LayerRates(layer_decay=0)
