"""Features of a frozen encoder: from the disk what a step would compute, once, whole, of the right model."""

import contextlib
import dataclasses
import functools
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.finetuning_config import Combination, FeatureConfig, FineTuningConfig, LayerRates
from bert_jax.model_config import ModelConfig
from bert_jax.parallel.interrupt import Interrupt, Interrupted
from bert_jax.tasks.finetuning.feature_cache import FeatureCache
from data_pipeline.tasks.finetuning.batches import evaluation_batches, training_batches
from data_pipeline.tasks.finetuning.packing import Packing
from data_pipeline.tasks.finetuning.rows import FEATURES, Rows
from tests.bert_jax.drawn import draw_head
from tests.bert_jax.tasks.heads import HEADS, KINDS
from tests.bert_jax.tasks.small_rows import LABELS, ROWS, make_rows
from tests.bert_jax.tiny_model import TINY

MODEL = dataclasses.replace(TINY, initializer_range=0.5)


def frozen(layers: tuple[int, ...] = (-1,), combine: Combination = "concat") -> FineTuningConfig:
    rates, features = LayerRates(frozen_layers=MODEL.num_layers), FeatureConfig(layers, combine)
    return FineTuningConfig(model=MODEL, num_labels=LABELS, rates=rates, features=features)


def params_of(kind: str, config: FineTuningConfig) -> dict[str, Any]:
    return draw_head(HEADS[kind](config))


def cache_in(
    directory: Path, encoder: Any, *, fingerprint: str = "a", layers: tuple[int, ...] = (-1,), **settings: Any
) -> FeatureCache:
    model: ModelConfig = dataclasses.replace(MODEL, **settings)
    alone = contextlib.nullcontext
    return FeatureCache(directory, encoder, fingerprint, model, layers, alone)


@pytest.mark.parametrize("packing", [None, Packing(length=40, max_rows=4)], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_head_learns_from_them_what_it_learns_from_the_encoder(
    kind: str, packing: Packing | None, tmp_path: Path
) -> None:
    """With dropout: a frozen encoder has none."""
    config = frozen()
    head, params = HEADS[kind](config), params_of(kind, config)
    cache = cache_in(tmp_path, params["encoder"])
    results = []
    for rows in (make_rows(kind), cache(make_rows(kind))):
        (batch,) = training_batches(rows, batch_size=ROWS, seed=0, first_step=0, num_steps=1, packing=packing)
        run = jax.jit(functools.partial(head.module.apply, deterministic=False))
        outputs = run({"params": params}, batch, rngs={"dropout": jax.random.key(1)})
        results.append(head.numerators(outputs, batch))
        assert (FEATURES in batch) == bool(head.flops(batch) == 0)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), *results)


@pytest.mark.parametrize("combine", ["concat", "sum", "weighted"])
def test_of_several_layers_each_has_its_place(combine: Combination, tmp_path: Path) -> None:
    config = frozen((0, -1), combine)
    head, params = HEADS["tagging"](config), params_of("tagging", config)
    cache = cache_in(tmp_path, params["encoder"], layers=(0, -1))
    losses = [
        head.numerators(head.module.apply({"params": params}, batch, deterministic=True), batch)["loss"]
        for rows in (make_rows("tagging"), cache(make_rows("tagging")))
        for batch in evaluation_batches(rows, ROWS)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_trial_on_one_layer_gets_its_features_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = frozen((1,), "each")
    head, params = HEADS["tagging"](config), params_of("tagging", config)
    cache = cache_in(tmp_path, params["encoder"], layers=(0, 1))
    rows = make_rows("tagging")
    losses = [
        head.numerators(head.module.apply({"params": params}, batch, deterministic=True), batch)["loss"]
        for given in (rows, cache(rows, 1))
        for batch in evaluation_batches(given, ROWS)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert not np.array_equal(features(cache(rows, 0)), features(cache(rows, 1)))
    assert len(capsys.readouterr().out.splitlines()) == 1


def features(rows: Rows) -> np.ndarray:
    return np.concatenate(rows.tokens[FEATURES])


def test_they_are_computed_once_for_each_model_layer_and_dtype(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = params_of("tagging", frozen())["encoder"]
    first = cache_in(tmp_path, encoder)
    assert first(make_rows("tagging")) is first(make_rows("tagging"))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("computing the encoder's features of 6 rows")
    again = cache_in(tmp_path, encoder)
    np.testing.assert_array_equal(
        features(again(make_rows("tagging"))), features(first(make_rows("tagging")))
    )
    assert capsys.readouterr().out == ""
    others: list[dict[str, Any]] = [
        {"fingerprint": "b"},
        {"layers": (0,)},
        {"activation": "gelu_exact"},
        {"dtype": "bfloat16"},
    ]
    for other in others:
        cache = cache_in(tmp_path, encoder, **other)
        cache(make_rows("tagging"))
        assert len(capsys.readouterr().out.splitlines()) == 1
    assert features(cache(make_rows("tagging"))).dtype == "bfloat16"
    assert len(list(first.directory.iterdir())) == 5
    first.clear()
    assert not first.directory.exists()


def test_a_pass_that_was_interrupted_leaves_nothing(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, params_of("tagging", frozen())["encoder"])
    interrupt = Interrupt()
    interrupt.signal_name = "SIGTERM"
    with pytest.raises(Interrupted):
        cache(make_rows("tagging"), after_batch=interrupt.check)
    assert list(cache.directory.iterdir()) == []


def test_without_space_every_step_computes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = cache_in(tmp_path, params_of("tagging", frozen())["encoder"])
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**4, 0, 10**3))
    rows = make_rows("tagging")
    assert cache(rows) is rows
    assert "every step computes them anew" in capsys.readouterr().out
