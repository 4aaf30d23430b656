"""The report of a study: what its files say, complete or not."""

import csv
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bert_jax.studies.report import write_report
from tests.bert_jax.studies.small_results import measurements, results

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


@pytest.fixture
def report(tmp_path: Path) -> Path:
    write_report(tmp_path, results(measurements(SCORES)))
    return tmp_path


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
    assert "| base | 84.0 ± 4.00 (84.4) |" in text
    assert "| mlm | 84.7 ± 4.04 (83.9) |" in text
    assert "| mlm | +0.67 [-0.77, +2.10], not distinguishable (-0.5) |" in text
    assert (
        "topic: of 1 order of two arms in the paper none reproduced, none reversed, 1 cannot be told" in text
    )
    assert "(base over mlm)." in text
    assert "- ltr, topic: 0 of 3 seeds" in text
    assert "13 of 14 jobs done" in text
    assert "failed: `mlm/seed-1`: NaN & so" in text
    assert "| objective | mlm_nsp | mlm |" in text
    assert "| fine-tuning features.lstm_layers | - | - | - | 1 |" in text


def test_the_page_needs_no_other_file_and_shows_text_as_text(report: Path) -> None:
    page = Page((report / "report.html").read_text())
    assert all(reference.startswith("#") for reference in page.references)
    assert "Small, so <b>nothing</b> follows." in page.text
    assert "NaN & so" in page.text
    assert "84.7 ± 4.04" in page.text


def test_figures_are_drawn_and_are_the_same_each_time(report: Path, tmp_path: Path) -> None:
    figures = {path.name for path in (report / "figures").iterdir()}
    assert {"differences.svg", "differences.png", "pretraining.svg", "flops.png"} <= figures
    before = {path: path.read_bytes() for path in report.rglob("*") if path.is_file()}
    write_report(report, results(measurements(SCORES)))
    assert {path: path.read_bytes() for path in report.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("num_seeds", "line"),
    [(1, "With one seed, this study cannot tell arms from noise."), (2, "With fewer than 3 seeds there are")],
)
def test_too_few_seeds_are_said(num_seeds: int, line: str, tmp_path: Path) -> None:
    write_report(tmp_path, results(measurements(SCORES), num_seeds))
    assert line in (tmp_path / "report.md").read_text()
    assert line in Page((tmp_path / "report.html").read_text()).text


def test_a_study_of_which_nothing_is_done_has_a_report(tmp_path: Path) -> None:
    write_report(tmp_path, results([]))
    assert "| base | - (84.4) |" in (tmp_path / "report.md").read_text()
