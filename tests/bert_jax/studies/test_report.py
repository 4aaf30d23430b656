"""The report of a study: what its files say, complete or not."""

import csv
import dataclasses
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from bert_jax.objectives import LeftToRight, MaskedLMAndNSP, ReplacedTokenDetection
from bert_jax.studies.figures import _heldout, draw_figures
from bert_jax.studies.report import render, write_report
from bert_jax.studies.report_view import make_view
from bert_jax.studies.results import Measurement, StudyResults
from bert_jax.studies.show import show_results
from bert_jax.studies.tables import make_table
from bert_jax.study import HeldoutLM, MinimalPairs
from bert_jax.task import Metric
from tests.bert_jax.studies.small_results import measurements, one_trial_each, results
from tests.bert_jax.studies.small_study import STUDY

SCORES = {
    "base": {0: {"lr1": [80], "lr2": [math.nan]}, 1: {"lr1": [84]}, 2: {"lr1": [88]}},
    "mlm": {0: {"lr1": [81]}, 1: {"lr1": [84]}, 2: {"lr1": [89]}},
}


class Page(HTMLParser):
    """What a page refers to, and its text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.text = ""
        self._skipped = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped = tag in ("script", "style")
        self.references += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href") and value
        ]

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.text += data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    write_report(directory, results(measurements(SCORES)))
    return directory


def of_plan(known: StudyResults, **fields: Any) -> StudyResults:
    """The results of a plan that differs in some fields."""
    return dataclasses.replace(known, plan=dataclasses.replace(known.plan, **fields))


def texts(known: StudyResults) -> tuple[str, str]:
    """The report as Markdown and as a page, without its figures, which take seconds to draw."""
    return render(make_view(known, make_table(known)), {})


def test_pretrainings_that_learnt_nothing_are_named() -> None:
    known = results(measurements(SCORES))
    runs = [dataclasses.replace(run, only_guesses=run.arm == "mlm" and run.seed != 1) for run in known.runs]
    markdown, page = texts(dataclasses.replace(known, runs=runs))
    assert "hardly better than guessing" in markdown
    assert "- mlm: seed 0, 2\n" in markdown
    assert "mlm: seed 0, 2" in Page(page).text
    assert not any("hardly better than guessing" in text for text in texts(known))


def test_every_metric_of_every_objective_is_drawn() -> None:
    known = results(measurements(SCORES))
    objectives = (MaskedLMAndNSP(), LeftToRight(), ReplacedTokenDetection())
    arms = zip(known.plan.experiments, objectives, strict=False)
    of_arms = {arm: known.plan.experiments["base"].with_objective(objective) for arm, objective in arms}
    known = of_plan(known, experiments={**known.plan.experiments, **of_arms})
    drawn = draw_figures(known, make_table(known))["pretraining-steps"]
    panels = [panel for panel in drawn.axes if panel.get_visible()]
    assert len(panels) == len({m for objective in objectives for m in objective.metrics}) > 7
    # The generator's accuracy is another metric than that of masked language modelling.
    arms_of = {panel.get_title(): panel.get_legend_handles_labels()[1] for panel in panels}
    of_mlm, of_generator = (
        arms_of[f"held-out {name}, %"] for name in ("MLM accuracy", "generator's MLM accuracy")
    )
    assert not {*of_mlm} & {*of_generator}


def test_what_flags_changed_of_the_scale_is_said() -> None:
    known = results(measurements(SCORES))
    assert not any("changed these settings" in text for text in texts(known))
    changed = of_plan(known, changed=("num_train_steps 8 -> 16", "model.vocab_size 100 -> 200"))
    for text in texts(changed):
        assert "(here those of base): num_train_steps 8 -" in text


def test_every_number_that_went_in_is_a_line(report: Path) -> None:
    with (report / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    assert rows[0] == {
        "arm": "base",
        "seed": "0",
        "step": "8",
        "measure": "classify",
        "hyperparameters": "lr1",
        "finetuning_seed": "0",
        "metric": "accuracy",
        "value": "80.0",
        "degenerate": "",
        "diverged": "",
    }
    assert rows[1]["value"] == ""


def test_the_table_shows_ours_the_papers_and_the_difference(report: Path) -> None:
    text = (report / "report.md").read_text()
    assert "| base | 84.0 ± 4.0 (84.4) |" in text
    assert "| mlm | 84.7 ± 4.0 (83.9) |" in text
    assert "| mlm | +0.67 [-0.77, +2.10], not distinguishable, over seeds alone (-0.5) |" in text
    assert "- topic: the paper's order is undecided with these seeds for base over mlm." in text
    assert "- ltr, 0 of 3 seeds: topic" in text
    assert "20 of 21 jobs done" in text
    assert "failed: `mlm/seed-1`: NaN & so" in text
    assert "| mlm | objective mlm (base: mlm_nsp) |\n" in text
    assert (
        "fine-tuning features.lstm_layers 1 (base: -); fine-tuning features.lstm_width 8 (base: -) |" in text
    )
    assert "- ltr and ltr_bilstm are the same pretraining, which is done once." in text
    assert text.count("are the same pretraining") == 1
    assert "| mlm | 81.0, 84.0, 89.0; lr1 (3 of 3) |" in text


def test_an_arm_is_compared_with_another_than_the_base(tmp_path: Path) -> None:
    scores = {**SCORES, **one_trial_each({"ltr": [71, 74.5, 78.5]})}
    arms = {**STUDY.arms, "ltr": dataclasses.replace(STUDY.arms["ltr"], compared_with="mlm")}
    known = results(measurements(scores), arms=arms)
    markdown, page = texts(known)
    line = "| ltr, mlm | -10.00 [-11.24, -8.76], over seeds alone |"
    assert line in markdown
    assert "compared with mlm" in Page(page).text
    assert "Differences between other arms" not in texts(results(measurements(scores)))[0]
    write_report(tmp_path, known)
    with (tmp_path / "differences.csv").open(newline="") as file:
        rows = {(row["arm"], row["compared_with"]): row for row in csv.DictReader(file)}
    assert list(rows) == [("mlm", "base"), ("ltr", "base"), ("ltr", "mlm")]
    row = rows["ltr", "mlm"]
    assert (float(row["difference"]), row["seeds"], row["items"], row["paper"]) == (-10, "3", "", "")
    assert float(row["low"]) == pytest.approx(-11.242, abs=1e-3)
    assert float(rows["mlm", "base"]["paper"]) == pytest.approx(-0.5)


def test_the_claim_of_an_arm_stands_beside_its_settings() -> None:
    arms = {**STUDY.arms, "mlm": dataclasses.replace(STUDY.arms["mlm"], claim="MNLI +0.5")}
    markdown, page = texts(results(measurements(SCORES), arms=arms))
    assert "| mlm | objective mlm (base: mlm_nsp) | MNLI +0.5 |" in markdown
    assert "MNLI +0.5" in Page(page).text


def test_the_page_needs_no_other_file_and_shows_text_as_text(report: Path) -> None:
    page = Page((report / "report.html").read_text())
    assert all(reference.startswith("#") for reference in page.references)
    assert "Small, so <b>nothing</b> follows." in page.text
    assert "NaN & so" in page.text
    assert "84.7 ± 4.0" in page.text


def test_markup_in_titles_and_headings_is_text(tmp_path: Path) -> None:
    column = dataclasses.replace(STUDY.measures[0], column="a<b> | $c^$ & d")
    known = results(measurements(SCORES), title="<i>T</i>", measures=(column,), published={})
    write_report(tmp_path, known)  # figures too have the heading
    page = Page((tmp_path / "report.html").read_text())
    assert "<i>T</i>" in page.text
    assert "a<b> | $c^$ & d: higher is better." in page.text
    assert "| arm | a&lt;b> \\| $c^$ & d |" in (tmp_path / "report.md").read_text()
    assert "paper" not in page.text.lower()


def test_cells_sort_by_their_numbers_and_those_without_come_last(report: Path) -> None:
    page = (report / "report.html").read_text()
    assert '<td data-order="84.0">84.0 ± 4.0' in page
    assert "<td>-<small>0 of 3 seeds" in page


def test_what_became_of_the_papers_orders_is_a_sentence() -> None:
    others = one_trial_each({"mlm": [90, 94.1, 98], "ltr": [70, 74.1, 78], "ltr_bilstm": [81, 82]})
    values = {"base": 80.0, "mlm": 81.0, "ltr": 82.0, "ltr_bilstm": 79.0}
    published = {arm: {"topic": value} for arm, value in values.items()}
    markdown, _ = texts(results(measurements({"base": SCORES["base"], **others}), published=published))
    expected = (
        "- topic: the paper's order is reproduced for mlm over base; reversed for ltr over mlm and base; "
        "undecided with these seeds for "
        "ltr over ltr_bilstm, and mlm over ltr_bilstm, and base over ltr_bilstm.\n"
    )
    assert expected in markdown


def test_the_terminal_shows_means_and_what_is_wrong_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    known = measurements(one_trial_each({"base": [80, 84, 91], "mlm": [90]}))
    column = dataclasses.replace(STUDY.measures[0], column="[topic]")
    shown = results(known, measures=(column,), published={})
    show_results(make_view(shown, make_table(shown)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["arm", "[topic]"],
        ["base", "85.0", "±", "5.6"],
        ["mlm", "90.0"],
    ]
    assert "note: mlm, [topic]: 1 of 3 seeds" in lines


def test_decimals_follow_from_the_unit() -> None:
    factors = {"bits_per_byte": 1, "mlm_accuracy": 0.1, "accuracy": 4, "mlm_perplexity": 100}
    values = {"base": [1.2341, 1.2361, 1.2381], "mlm": [1.2441, 1.2461, 1.2482]}
    columns = tuple(
        (MinimalPairs if metric == "accuracy" else HeldoutLM)(metric, metric) for metric in factors
    )
    measured = [
        Measurement(arm, seed, 8, measure, {name: factor * value for name, factor in factors.items()})
        for arm, of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
        for measure in dict.fromkeys(column.name for column in columns)
    ]
    text, _ = texts(results(measured, measures=columns, published={}))
    assert "| base | 1.236 ± 0.002 | 0.124 ± 0.000 | 4.9 ± 0.0 | 123.6 ± 0.2 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| mlm | +"))
    assert row.replace(", over seeds alone", "") == (
        "| mlm | +0.010 [+0.010, +0.010] | +0.001 [+0.001, +0.001] | +0.04 [+0.04, +0.04] "
        "| +1.00 [+0.99, +1.02] |"
    )
    assert "bits_per_byte: lower is better; mlm_accuracy: higher is better; " in text


def test_figures_are_drawn_and_are_the_same_each_time(report: Path) -> None:
    figures = {path.name for path in (report / "figures").iterdir()}
    names = {"differences", "scores-flops", "pretraining-steps", "pretraining-flops"}
    assert figures == {name + suffix for name in names for suffix in (".svg", ".png")}
    before = {path: path.read_bytes() for path in report.rglob("*") if path.is_file()}
    (report / "figures" / "scores-steps.svg").touch()  # of an earlier report
    write_report(report, results(measurements(SCORES)))
    assert {path: path.read_bytes() for path in report.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_held_out_metrics_on_other_data_are_said_not_to_compare(rate: float) -> None:
    known = results(measurements(SCORES))
    arms = dict.fromkeys(known.plan.experiments, known.plan.experiments["base"])
    masking = dataclasses.replace(arms["base"].data.masking, rate=rate)
    data = dataclasses.replace(arms["base"].data, masking=masking)
    arms["mlm"] = dataclasses.replace(arms["base"], data=data)
    view = make_view(of_plan(known, experiments=arms), make_table(known))
    for name, (_, caption) in view["captions"].items():
        differs = rate != arms["base"].data.masking.rate and name.startswith("pretraining")
        assert ("do not compare" in caption) == differs, name


def test_a_legend_promises_no_interval_that_is_not_there() -> None:
    for seeds, expected in (
        (2, "ours, too few seeds for an interval"),
        (3, "95% interval contains 0, or none"),
    ):
        scores = {arm: list(range(80, 80 + seeds)) for arm in ("base", "mlm")}
        known = results(measurements(one_trial_each(scores)))
        (legend,) = draw_figures(known, make_table(known))["differences"].legends
        assert expected in [text.get_text() for text in legend.get_texts()]


def test_legends_lie_inside_their_figures() -> None:
    """Also that of one panel, which is narrow, with the paper's numbers."""
    known = results(measurements(SCORES))
    for name, figure in draw_figures(known, make_table(known)).items():
        (legend,) = figure.legends
        extent = legend.get_window_extent()
        assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width, name


def test_figures_stand_in_the_page_in_its_colours(report: Path) -> None:
    for file in (report / "figures").glob("*.svg"):
        assert "#010203" in file.read_text()
        ElementTree.parse(file)
    page = (report / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "#010203" not in page
    assert "#fffffe" not in page  # a background would hide what lies below


def test_scores_at_several_steps_are_a_figure_and_a_table(tmp_path: Path) -> None:
    measured = measurements(SCORES)
    earlier = [dataclasses.replace(m, step=4) for m in measured]
    write_report(tmp_path, results([*measured, *earlier]))
    assert "pretraining steps" in (tmp_path / "figures" / "scores-steps.svg").read_text()
    markdown, page = ((tmp_path / name).read_text() for name in ("report.md", "report.html"))
    assert "## Scores against pretraining steps" in markdown
    table = markdown[markdown.index("## topic at each step") :]
    assert "| arm | 4 | 8 |" in table
    for row in ("base", "mlm", "mlm, difference"):
        assert re.search(rf"^\| {row} \| ([^|]+) \| \1 \|$", table, re.MULTILINE)
    assert "<h2>topic at each step</h2>" in page


def test_arms_of_unequal_steps_make_no_table_by_step(tmp_path: Path) -> None:
    measured = [dataclasses.replace(m, step=4 if m.arm == "mlm" else 8) for m in measurements(SCORES)]
    write_report(tmp_path, results(measured))
    assert "at each step" not in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("num_seeds", "line"),
    [(1, "With one seed, this study cannot tell arms from noise."), (2, "With fewer than 3 seeds there are")],
)
def test_too_few_seeds_are_said(num_seeds: int, line: str) -> None:
    markdown, page = texts(results(measurements(SCORES), num_seeds))
    assert line in markdown
    assert line in Page(page).text


def test_a_study_of_one_arm_says_what_is_noise() -> None:
    known = results(measurements({"base": SCORES["base"]}), arms={"base": STUDY.arms["base"]}, published={})
    experiments = {"base": known.plan.experiments["base"]}
    markdown, page = texts(of_plan(known, experiments=experiments))
    expected = 4.302653 * 4 * math.sqrt(2 / 3)  # scores of 80, 84, 88
    assert f"| 3 | {expected:.2f} |" in markdown
    assert f"{expected:.2f}" in Page(page).text
    assert "What is noise" not in texts(results(measurements(SCORES)))[0]


def test_a_study_of_which_nothing_is_done_has_a_report(tmp_path: Path) -> None:
    write_report(tmp_path, results([]))
    assert "| base | - (84.4) |" in (tmp_path / "report.md").read_text()


def test_fractions_are_drawn_in_percent() -> None:
    fraction = Metric("a", "a", "{:.1%}", panel="p")
    run: Any = SimpleNamespace(heldout=[{"step": 4, "a": 0.5}])
    assert _heldout([run], fraction) == {4: [50.0]}
