"""Which trials the flags of `bert-jax finetune` make."""

import dataclasses

import pytest

from bert_jax.cli.flags.finetune import parse
from bert_jax.finetuning_config import FeatureConfig, FineTuningConfig, Trial
from bert_jax.task import Metric
from bert_jax.tasks.finetuning.results import by_seed
from bert_jax.tasks.finetuning.trials import trial_config


def trials(*flags: str) -> list[Trial]:
    return parse(["cola", "--model=m", "--data=d", "--output=o", *flags]).training.trials()


def test_without_flags_there_is_one() -> None:
    assert trials() == [Trial(learning_rate=3e-5, batch_size=32, epochs=3.0, seed=0)]


@pytest.mark.parametrize(
    ("given", "count"), [((), 18), (("--batch-size", "32"), 9), (("--learning-rate", "4e-5", "5e-5"), 12)]
)
def test_the_papers_grid_fills_what_is_not_given(given: tuple[str, ...], count: int) -> None:
    grid = trials("--grid", *given)
    assert len(set(grid)) == len(grid) == count
    if "--batch-size" in given:
        assert {trial.batch_size for trial in grid} == {32}


def test_repeats_may_be_spread_over_machines() -> None:
    assert [trial.seed for trial in trials("--seeds=2", "--first-seed=3")] == [3, 4]


@pytest.mark.parametrize(("rows", "every"), [(80, 10), (80_000, 1000)])
def test_a_long_epoch_is_saved_before_its_end(rows: int, every: int) -> None:
    config = trial_config(FineTuningConfig(), Trial(3e-5, 8, 2.0, 0), rows)
    assert (config.checkpoint_every, config.eval_every) == (every, rows // 8)


@pytest.mark.parametrize(
    ("rows", "epochs", "batch_size", "steps"), [(110, 1.1, 11, 11), (25, 2.2, 11, 5), (100, 1.1, 11, 10)]
)
def test_a_part_of_an_epoch_has_no_step_too_many(
    rows: int, epochs: float, batch_size: int, steps: int
) -> None:
    trial = Trial(3e-5, batch_size, epochs, 0)
    assert trial_config(FineTuningConfig(), trial, rows).num_train_steps == steps


def test_a_value_that_is_given_twice_is_one_trial() -> None:
    assert [trial.learning_rate for trial in trials("--learning-rate", "3e-5", "5e-5", "3e-5")] == [
        3e-5,
        5e-5,
    ]


def test_trials_of_different_settings_have_different_directories() -> None:
    rates = (1e-5, 1.0000001e-5, 3e-5, 0.001, 1.0)
    names = [Trial(rate, 8, epochs, 0).name for rate in rates for epochs in (1.0, 1.0000001)]
    assert len(set(names)) == len(names)
    assert Trial(3e-5, 32, 3.0, 1).name == "lr3e-05-batch32-epochs3-seed1"
    assert Trial(3e-5, 32, 3.0, 1, layer=2).name == "layer2-lr3e-05-batch32-epochs3-seed1"


def test_each_layer_alone_is_an_axis_of_the_grid() -> None:
    probes = trials("--features.combine=each", "--features.layers", "0", "2", "--seeds=2")
    assert [(trial.layer, trial.seed) for trial in probes] == [(0, 0), (2, 0), (0, 1), (2, 1)]
    base = FineTuningConfig(features=FeatureConfig((0, 2), "each"))
    assert trial_config(base, probes[1], 32).features == FeatureConfig((2,), "each")


def test_the_deviation_over_seeds_is_that_of_a_sample() -> None:
    results = [
        dataclasses.asdict(Trial(1e-3, 8, 1.0, seed))
        | {"metrics": {"f1": value}, "degenerate": None, "diverged": None}
        for seed, value in enumerate((0.5, 0.7))
    ]
    (row,) = by_seed(results, Metric("f1", "F1"))
    assert (row["mean"], row["stdev"]) == pytest.approx((0.6, 0.02**0.5))
