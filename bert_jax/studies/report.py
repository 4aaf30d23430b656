"""The report of a study: a page, the same as Markdown, figures, and every number that went in.

report.html    opens offline; tables sort
report.md
results.csv    a line for each number; byte for byte the same whenever the results are
differences.csv    a line for each difference of two arms in a column
figures/       .svg and .png
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2

from bert_jax.studies.csv_files import CSV_FILE, DIFFERENCES_FILE, write_csv_files
from bert_jax.studies.figures import FIGURE_KINDS, draw_figures, for_page, write_figures
from bert_jax.studies.report_view import CAPTIONS, make_view
from bert_jax.studies.results import StudyResults
from bert_jax.studies.tables import make_table
from data_pipeline.atomic import write_bytes
from data_pipeline.stand_in import push_files, remove_file

MARKDOWN_FILE = "report.md"
PAGE_FILE = "report.html"
FIGURES_DIRECTORY = "figures"


def write_report(directory: Path, results: StudyResults) -> dict[str, Any]:
    """Writes the report of a study, complete or not, into its directory; returns what `make_view` does."""
    table = make_table(results)
    view = make_view(results, table)
    write_csv_files(directory, results, table)
    drawings = write_figures(directory / FIGURES_DIRECTORY, draw_figures(results, table))
    markdown, page = render(view, drawings)
    write_bytes(directory / MARKDOWN_FILE, markdown.encode())
    write_bytes(directory / PAGE_FILE, page.encode())
    push_files(directory, CSV_FILE, DIFFERENCES_FILE, MARKDOWN_FILE, PAGE_FILE, *_figure_files(drawings))
    for file in _figure_files({"differences", *CAPTIONS} - drawings.keys()):  # of an earlier report
        if (directory / file).exists():
            remove_file(directory, file)
    return view


def _figure_files(names: Iterable[str]) -> Iterator[str]:
    return (f"{FIGURES_DIRECTORY}/{name}.{kind}" for name in names for kind in FIGURE_KINDS)


def render(view: Mapping[str, Any], drawings: Mapping[str, str]) -> tuple[str, str]:
    """Returns the report as Markdown and as a page.

    Args:
      view: returned by `make_view`.
      drawings: name of a figure -> its SVG text; those that are not there are left out.
    """
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("bert_jax.studies", "templates"),
        autoescape=jinja2.select_autoescape(("html.j2",)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    templates.filters["md"] = _markdown
    markdown = templates.get_template("report.md.j2").render(**view, figures=drawings)
    inline = {name: for_page(drawing) for name, drawing in drawings.items()}
    return markdown, templates.get_template("report.html.j2").render(**view, figures=inline)


def _markdown(text: object) -> str:
    """Text that stays text in a cell of a Markdown table."""
    return " ".join(str(text).split()).replace("<", "&lt;").replace("|", "\\|")
