"""Tables of studies: whose numbers a place shows, and what a difference says."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bert_jax.studies.tables import curves, higher_is_better, make_table
from tests.bert_jax.studies.small_results import measurements, results
from tests.bert_jax.studies.small_study import STUDY


def test_a_seed_is_the_mean_of_its_best_hyperparameters_and_a_place_the_mean_over_seeds() -> None:
    scores = {
        "base": {
            0: {"lr1": [80, 82], "lr2": [70, 90]},
            1: {"lr1": [60, 62], "lr2": [83, 85]},
            2: {"lr1": [87, 87], "lr2": [math.nan, 99]},
        }
    }
    place = make_table(results(measurements(scores))).places["base", "topic"]
    assert place.values == {0: 81, 1: 84, 2: 87}
    assert place.hyperparameters == {0: "lr1", 1: "lr2", 2: "lr1"}
    assert place.mean == 84
    assert place.stdev == 3
    # Variances 2, 2 and 0 of two fine-tuning seeds each.
    assert place.finetuning_stdev == pytest.approx(math.sqrt(4 / 3))
    assert (place.num_trials, place.published) == (12, 84.4)


def test_a_difference_is_paired_by_pretraining_seed() -> None:
    base, mlm = [80, 84, 91], [81.0, 85.5, 91.5]
    scores = {
        "base": {seed: {"lr1": [score]} for seed, score in enumerate(base)},
        "mlm": {seed: {"lr1": [score]} for seed, score in enumerate(mlm)},
    }
    place = make_table(results(measurements(scores))).places["mlm", "topic"]
    assert place.difference is not None
    differences = np.subtract(mlm, base)
    half = stats.t.ppf(0.975, 2) * differences.std(ddof=1) / math.sqrt(3)
    assert place.difference.mean == pytest.approx(1)
    assert place.difference.interval == pytest.approx((1 - half, 1 + half))
    assert place.published_difference == pytest.approx(-0.5)
    assert place.verdict == "not distinguishable"


@pytest.mark.parametrize(
    ("mlm", "verdict"),
    [([70, 74, 80], "reversed"), ([50, 54, 60], "reproduced"), ([60, 64], "cannot be told")],
)
def test_a_verdict_compares_the_order_with_the_papers(mlm: list[float], verdict: str) -> None:
    base = [60.0, 64.1, 70.0]
    scores = {
        "base": {seed: {"lr1": [score]} for seed, score in enumerate(base)},
        "mlm": {seed: {"lr1": [score]} for seed, score in enumerate(mlm)},
    }
    table = make_table(results(measurements(scores)))
    assert table.places["mlm", "topic"].verdict == verdict
    assert table.places["base", "topic"].verdict is None


def test_seeds_that_one_arm_lacks_are_left_out_of_the_difference() -> None:
    scores = {"base": {0: {"lr1": [80]}, 1: {"lr1": [90]}}, "mlm": {1: {"lr1": [91]}, 2: {"lr1": [50]}}}
    place = make_table(results(measurements(scores))).places["mlm", "topic"]
    assert place.difference is not None
    assert (place.difference.mean, place.difference.num_seeds, place.difference.interval) == (1, 1, None)
    assert len(place.values) == 2
    assert place.num_seeds == 3


def test_arms_without_any_number_have_a_place_that_says_so() -> None:
    scores = {"base": {0: {"lr1": [80]}}, "mlm": {0: {"lr1": [math.nan]}}}
    table = make_table(results(measurements(scores)))
    assert table.places["mlm", "topic"].mean is None
    assert table.places["mlm", "topic"].difference is None
    assert table.places["ltr", "topic"].values == {}


def test_an_arm_that_is_measured_by_other_metrics_has_no_place() -> None:
    measured = measurements({"base": {0: {"lr1": [80]}}, "ltr": {0: {"lr1": [70]}}})
    other = type(measured[1])(**{**vars(measured[1]), "metrics": {"ltr_perplexity": 9.0}})
    places = make_table(results([measured[0], other])).places
    assert ("base", "topic") in places
    assert ("ltr", "topic") not in places
    assert ("mlm", "topic") in places


def test_items_are_resampled_with_the_seeds_where_all_have_them(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    measured = []
    for m in measurements({arm: {seed: {"lr1": [0.0, 0.0]} for seed in range(3)} for arm in ("base", "mlm")}):
        right = (draw.random(200) < 0.8).astype(float)
        file = tmp_path / f"{m.arm}-{m.seed}-{m.finetuning_seed}.npz"
        np.savez(file, accuracy=right)
        metrics = {"accuracy": 100 * right.mean()}
        measured.append(type(m)(**{**vars(m), "metrics": metrics, "items": file, "items_scale": 100.0}))
    place = make_table(results(measured)).places["mlm", "topic"]
    assert place.difference is not None
    assert place.difference.num_items == 200
    values = make_table(results(measured)).places["base", "topic"].values
    expected = np.mean([place.values[seed] - values[seed] for seed in range(3)])
    assert place.difference.mean == pytest.approx(expected)  # in percent, as the table is
    assert place.difference.interval is not None
    without = [type(m)(**{**vars(m), "items": None}) for m in measured]
    alone = make_table(results(without)).places["mlm", "topic"].difference
    assert alone is not None
    assert (alone.num_items, alone.mean) == (None, pytest.approx(expected))


def test_curves_hold_every_step_that_was_measured() -> None:
    measured = measurements({"base": {0: {"lr1": [80]}, 1: {"lr1": [90]}}})
    earlier = [type(m)(**{**vars(m), "step": 4, "metrics": {"accuracy": 50.0}}) for m in measured[:1]]
    (base, *_) = curves(results([*measured, *earlier]), STUDY.measures[0])
    assert base.points == {4: {0: 50.0}, 8: {0: 80.0, 1: 90.0}}


def test_losses_are_better_when_lower() -> None:
    assert [higher_is_better(name) for name in ("mlm_perplexity", "bits_per_byte", "accuracy")] == [
        False,
        False,
        True,
    ]
