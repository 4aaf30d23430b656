"""Tables of studies: whose numbers a cell shows, and what a difference says."""

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bert_jax.studies.results import Measurement
from bert_jax.studies.tables import Order, StudyTable, make_table
from bert_jax.study import HeldoutLM, Probe
from data_pipeline.errors import UserError
from tests.bert_jax.studies.small_results import measurements, one_trial_each, results
from tests.bert_jax.studies.small_study import STUDY


def test_a_seed_is_the_mean_of_its_best_hyperparameters_and_a_place_the_mean_over_seeds() -> None:
    scores = {
        "base": {
            0: {"lr1": [80, 82], "lr2": [70, 90]},
            1: {"lr1": [60, 62], "lr2": [83, 85]},
            2: {"lr1": [87, 87], "lr2": [math.nan, 99]},
        }
    }
    cell = make_table(results(measurements(scores))).cells["base", "topic"]
    assert cell.values == {0: 81, 1: 84, 2: 87}
    assert cell.hyperparameters == {0: "lr1", 1: "lr2", 2: "lr1"}
    assert cell.mean == 84
    assert cell.stdev == 3
    # Variances 2, 2 and 0 of two fine-tuning seeds each.
    assert cell.finetuning_stdev == pytest.approx(math.sqrt(4 / 3))
    assert (cell.num_trials, cell.published) == (12, 84.4)


def test_a_difference_is_paired_by_pretraining_seed() -> None:
    base, mlm = [80, 84, 91], [81.0, 85.5, 91.5]
    scores = one_trial_each({"base": base, "mlm": mlm})
    cell = make_table(results(measurements(scores))).cells["mlm", "topic"]
    assert cell.difference is not None
    differences = np.subtract(mlm, base)
    half = stats.t.ppf(0.975, 2) * differences.std(ddof=1) / math.sqrt(3)
    assert cell.difference.mean == pytest.approx(1)
    assert cell.difference.interval == pytest.approx((1 - half, 1 + half))
    assert cell.published_difference == pytest.approx(-0.5)


def test_columns_of_a_probe_show_one_layer_or_the_best_of_each_seed() -> None:
    best = Probe("best", "accuracy", "classify", "topic")
    columns = (best, *(dataclasses.replace(best, column=f"layer {n}", layer=n) for n in (0, 1, 2)))
    scores = {(0, 0): 60.0, (0, 1): 80.0, (1, 0): 75.0, (1, 1): 70.0}  # (seed, layer)
    probed = [
        Measurement("base", seed, 8, best.name, {"accuracy": score}, f"layer{layer}-lr1", 0, layer)
        for (seed, layer), score in scores.items()
    ]
    cells = make_table(results(probed, num_seeds=2, measures=columns, published={})).cells
    assert cells["base", "best"].values == {0: 80, 1: 75}
    assert cells["base", "best"].hyperparameters == {0: "layer1-lr1", 1: "layer0-lr1"}
    assert cells["base", "layer 0"].values == {0: 60, 1: 75}
    assert cells["base", "layer 1"].values == {0: 80, 1: 70}
    assert ("base", "layer 2") not in cells  # the model has no such layer
    assert cells["mlm", "layer 2"].values == {}  # that is not known yet


def test_deviations_of_finetuning_seeds_are_pooled_by_their_number() -> None:
    scores = {"base": {0: {"lr1": [80, 82]}, 1: {"lr1": [60, 63, 66, 69]}, 2: {"lr1": [50]}}}
    cell = make_table(results(measurements(scores))).cells["base", "topic"]
    # Squares of 2 with one degree of freedom, of 45 with three.
    assert cell.finetuning_stdev == pytest.approx(math.sqrt((2 + 45) / 4))


def table_of(published: Mapping[str, float], metric: str = "accuracy") -> StudyTable:
    """A study whose arm `base` is clearly above `mlm`, which `ltr` cannot be told from; `ltr_bilstm` has one
    seed."""
    by_arm = {"base": [70, 74.1, 80], "mlm": [60, 64, 70.1], "ltr": [60.2, 63, 71], "ltr_bilstm": [50]}
    measured = [
        dataclasses.replace(m, metrics={metric: m.metrics["accuracy"]})
        for m in measurements(one_trial_each(by_arm))
    ]
    topic = dataclasses.replace(STUDY.measures[0], metric=metric)
    in_paper = {arm: {"topic": score} for arm, score in published.items()}
    return make_table(results(measured, measures=(topic,), published=in_paper))


def test_every_two_arms_that_differ_in_the_paper_are_an_order() -> None:
    table = table_of({"ltr_bilstm": 90, "mlm": 84, "base": 84.4, "ltr": 84})
    assert table.orders["topic"] == (
        Order("ltr_bilstm", "base", "undecided with these seeds"),
        Order("ltr_bilstm", "mlm", "undecided with these seeds"),
        Order("ltr_bilstm", "ltr", "undecided with these seeds"),
        Order("base", "mlm", "reproduced"),
        Order("base", "ltr", "reproduced"),
    )


@pytest.mark.parametrize(
    ("published", "metric", "verdict"),
    [
        ({"base": 84.4, "mlm": 83}, "accuracy", "reproduced"),
        ({"base": 83, "mlm": 84.4}, "accuracy", "reversed"),
        ({"ltr": 84.4, "mlm": 83}, "accuracy", "undecided with these seeds"),
        ({"mlm": 3.5, "base": 4.2}, "mlm_perplexity", "reproduced"),
        ({"mlm": 4.2, "base": 3.5}, "mlm_perplexity", "reversed"),
    ],
)
def test_an_order_is_reproduced_only_if_the_interval_excludes_0(
    published: dict[str, float], metric: str, verdict: str
) -> None:
    (order,) = table_of(published, metric).orders["topic"]
    assert order.verdict == verdict


def test_seeds_that_one_arm_lacks_are_left_out_of_the_difference() -> None:
    scores = {"base": {0: {"lr1": [80]}, 1: {"lr1": [90]}}, "mlm": {1: {"lr1": [91]}, 2: {"lr1": [50]}}}
    cell = make_table(results(measurements(scores))).cells["mlm", "topic"]
    assert cell.difference is not None
    assert (cell.difference.mean, cell.difference.num_seeds, cell.difference.interval) == (1, 1, None)
    assert len(cell.values) == 2
    assert cell.num_seeds == 3


def test_arms_without_any_number_have_a_place_that_says_so() -> None:
    scores = {"base": {0: {"lr1": [80]}}, "mlm": {0: {"lr1": [math.nan]}}}
    table = make_table(results(measurements(scores)))
    assert table.cells["mlm", "topic"].mean is None
    assert table.cells["mlm", "topic"].difference is None
    assert table.cells["ltr", "topic"].values == {}


def test_an_arm_that_is_measured_by_other_metrics_has_no_cell() -> None:
    measured = measurements({"base": {0: {"lr1": [80]}}, "ltr": {0: {"lr1": [70]}}})
    other = dataclasses.replace(measured[1], metrics={"ltr_perplexity": 9.0})
    cells = make_table(results([measured[0], other])).cells
    assert ("base", "topic") in cells
    assert ("ltr", "topic") not in cells
    assert ("mlm", "topic") in cells


def test_an_arm_that_is_measured_at_earlier_steps_alone_has_a_place_that_waits() -> None:
    measured = measurements({"base": {0: {"lr1": [80]}}, "ltr": {0: {"lr1": [70]}}})
    earlier = dataclasses.replace(measured[1], step=4)
    cell = make_table(results([measured[0], earlier])).cells["ltr", "topic"]
    assert (cell.values, cell.num_seeds) == ({}, 3)


def test_hyperparameters_that_some_finetuning_seeds_lack_are_not_chosen() -> None:
    scores = {"base": {0: {"lr1": [80, 82], "lr2": [99]}}}
    cell = make_table(results(measurements(scores))).cells["base", "topic"]
    assert (cell.values, cell.hyperparameters) == ({0: 81}, {0: "lr1"})


@pytest.mark.parametrize(
    "items",
    [None, {"other": np.zeros(5)}, {"accuracy": np.zeros((5, 7))}, {"accuracy": np.full(5, math.nan)}],
    ids=["no file", "another metric", "a form without statistic", "not finite"],
)
def test_items_that_cannot_be_used_leave_the_interval_over_seeds(
    items: dict[str, np.ndarray] | None, tmp_path: Path
) -> None:
    file = tmp_path / "items.npz"
    if items is not None:
        np.savez(file, **items)  # type: ignore[arg-type]
    without = measurements(one_trial_each({"base": [80, 84, 91], "mlm": [81, 84, 92]}))
    with_items = [dataclasses.replace(m, items=file) for m in without]
    expected = make_table(results(without)).cells["mlm", "topic"].difference
    assert make_table(results(with_items)).cells["mlm", "topic"].difference == expected


def test_a_correlation_is_computed_for_each_finetuning_seed_and_then_averaged(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    target = draw.normal(size=60)
    measured = []
    for m in measurements({arm: {seed: {"lr1": [0, 0]} for seed in range(3)} for arm in ("base", "mlm")}):
        outcomes = np.stack([target + draw.normal(size=60), target], axis=-1)
        file = tmp_path / f"{m.arm}-{m.seed}-{m.finetuning_seed}.npz"
        np.savez(file, accuracy=outcomes[:, 0] > 0, pearson=outcomes)
        metrics = {"accuracy": 0.0, "pearson": 100 * stats.pearsonr(*outcomes.T).statistic}
        measured.append(dataclasses.replace(m, metrics=metrics, items=file, items_scale={"pearson": 100.0}))
    column = dataclasses.replace(STUDY.measures[0], metric="pearson")
    cells = make_table(results(measured, measures=(column,))).cells
    difference, base = cells["mlm", "topic"].difference, cells["base", "topic"].values
    assert difference is not None
    assert difference.num_items == 60
    expected = np.mean([cells["mlm", "topic"].values[seed] - base[seed] for seed in range(3)])
    assert difference.mean == pytest.approx(expected)


def test_items_are_resampled_with_the_seeds_where_all_have_them(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    measured = []
    for m in measurements({arm: {seed: {"lr1": [0.0, 0.0]} for seed in range(3)} for arm in ("base", "mlm")}):
        right = (draw.random(200) < 0.8).astype(float)
        file = tmp_path / f"{m.arm}-{m.seed}-{m.finetuning_seed}.npz"
        np.savez(file, accuracy=right)
        metrics = {"accuracy": 100 * right.mean()}
        measured.append(dataclasses.replace(m, metrics=metrics, items=file, items_scale={"accuracy": 100.0}))
    cell = make_table(results(measured)).cells["mlm", "topic"]
    assert cell.difference is not None
    assert cell.difference.num_items == 200
    values = make_table(results(measured)).cells["base", "topic"].values
    expected = np.mean([cell.values[seed] - values[seed] for seed in range(3)])
    assert cell.difference.mean == pytest.approx(expected)  # in percent, as the table is
    assert cell.difference.interval is not None
    without = [dataclasses.replace(m, items=None) for m in measured]
    alone = make_table(results(without)).cells["mlm", "topic"].difference
    assert alone is not None
    assert (alone.num_items, alone.mean) == (None, pytest.approx(expected))


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_a_damaged_file_of_items_is_named(damage: str, tmp_path: Path) -> None:
    job = tmp_path / "sst2"
    file = job / "trials" / "a" / "items.npz"
    file.parent.mkdir(parents=True)
    (job / "job.json").touch()
    np.savez_compressed(file, accuracy=np.random.default_rng(0).random(200, np.float32))
    content = file.read_bytes()
    file.write_bytes(content[:300] if damage == "cut" else content[:50] + b"\xff" * 50 + content[100:])
    scores = {arm: {0: {"lr1": [80.0]}} for arm in ("base", "mlm")}
    trials = [dataclasses.replace(m, items=file) for m in measurements(scores)]
    with pytest.raises(UserError, match=f"^{file} is damaged; remove {job}, and the job is done again$"):
        make_table(results(trials))


def test_items_that_were_written_again_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "items.npz"
    measured = measurements(one_trial_each({"base": [50] * 3, "mlm": [50] * 3}))
    of_base = tmp_path / "base.npz"
    np.savez(of_base, accuracy=np.zeros(10))
    measured = [dataclasses.replace(m, items=file if m.arm == "mlm" else of_base) for m in measured]
    for time, right in enumerate((0.25, 0.5)):
        np.savez(file, accuracy=np.full(10, right))
        os.utime(file, (time, time))
        difference = make_table(results(measured)).cells["mlm", "topic"].difference
        assert difference is not None
        assert difference.mean == right


def test_cells_by_step_hold_every_step_and_differences_after_as_many() -> None:
    measured = measurements(one_trial_each({"base": [80, 90], "mlm": [81, 94]}))
    earlier = dataclasses.replace(measured[0], step=4, metrics={"accuracy": 50.0})
    later_alone = [dataclasses.replace(m, step=6) for m in measured if m.arm == "mlm"]
    cells = make_table(results([*measured, earlier, *later_alone])).by_step["topic"]
    assert {place: cell.values for place, cell in cells.items()} == {
        ("base", 4): {0: 50.0},
        ("base", 8): {0: 80.0, 1: 90.0},
        ("mlm", 6): {0: 81.0, 1: 94.0},
        ("mlm", 8): {0: 81.0, 1: 94.0},
    }
    after_all = cells["mlm", 8].difference
    assert after_all is not None
    assert after_all.mean == 2.5
    assert [cells[place].difference for place in (("base", 8), ("mlm", 6))] == [None, None]


@pytest.mark.parametrize("metric", ["mlm_perplexity", "ltr_loss", "bits_per_byte"])
def test_losses_of_language_models_are_better_when_lower(metric: str) -> None:
    assert not HeldoutLM("x", metric).higher_is_better


def test_of_an_error_the_lowest_is_best() -> None:
    error = dataclasses.replace(STUDY.measures[0], lower_is_better=True)
    scores = {
        "base": {seed: {"lr1": [80 + seed], "lr2": [70 + seed]} for seed in range(3)},
        "mlm": {seed: {"lr1": [50 + 2 * seed]} for seed in range(3)},
    }
    table = make_table(results(measurements(scores), measures=(error,)))
    assert table.cells["base", "topic"].values == {0: 70, 1: 71, 2: 72}
    assert table.orders["topic"] == (Order("mlm", "base", "reproduced"),)
