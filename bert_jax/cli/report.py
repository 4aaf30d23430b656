"""`bert-jax report RUN...`: compares runs in a table, a CSV file and a plot."""

import csv
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from bert_jax.finetuning.grid_folder import CELLS_FOLDER, RESULTS_FILE, not_finished
from data_pipeline.errors import UserError

if typing.TYPE_CHECKING:
    from bert_jax.report.finetuning import Score
    from bert_jax.report.pretraining import Group


@dataclasses.dataclass(frozen=True)
class Report:
    """Compare runs: the final metrics of each, and the settings that differ.

    For pretraining runs it shows the last held-out metrics; runs that differ only in the seed share a
    line. For fine-tuned models it shows the score on the development set by model, task and data, with the
    hyperparameters that are best on average. Metrics of several seeds are mean ± standard deviation.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Work directories of `bert-jax pretrain`, or output folders of `bert-jax finetune`."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the table as CSV, with a line for each run or cell."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also draw held-out accuracy and perplexity of pretraining runs: .png, .svg or .pdf (extra [plot])."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("name the folder of a run, or of several")


def run(args: Report) -> None:
    """Prints the tables and writes the files.

    Raises:
      UserError: a folder that is no run, a fine-tuning that is not finished, a plot that cannot be made.
    """
    from bert_jax.report.finetuning import read_score
    from bert_jax.report.pretraining import group_runs, read_run

    folders = list(dict.fromkeys(args.runs))
    finetuned = [folder for folder in folders if (folder / RESULTS_FILE).exists()]
    pretrained = [folder for folder in folders if folder not in finetuned]
    _check_files(args, pretrained, finetuned)
    groups = group_runs(map(read_run, pretrained))
    scores = list(map(read_score, finetuned))
    if groups:
        _print_groups(groups)
    if scores:
        _print_scores(scores)
    _write_files(args, groups, scores)


def _check_files(args: Report, pretrained: Sequence[Path], finetuned: Sequence[Path]) -> None:
    if args.csv and pretrained and finetuned:
        raise UserError(
            f"--csv takes runs of one kind; {pretrained[0]} is pretrained, {finetuned[0]} fine-tuned"
        )
    if args.plot:
        from bert_jax.report.curves import check_plot

        if not pretrained:
            raise UserError("--plot draws the curves of pretraining runs; name one")
        check_plot(args.plot)
    for folder in pretrained:
        if (folder / CELLS_FOLDER).is_dir():
            raise not_finished(folder)


def _write_files(args: Report, groups: "Sequence[Group]", scores: "Sequence[Score]") -> None:
    from bert_jax.report import curves, finetuning, pretraining

    if args.csv:
        _write_csv(args.csv, pretraining.table(groups) if groups else finetuning.table(scores))
        print(f"wrote {args.csv}")
    if args.plot:
        rows = {group.name: [run.heldout for run in group.runs] for group in groups}
        curves.draw_curves(args.plot, rows)
        print(f"wrote {args.plot}")


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from data_pipeline.atomic import atomically

    names = dict.fromkeys(name for row in rows for name in row)
    with atomically(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _print_groups(groups: "Sequence[Group]") -> None:
    from bert_jax.report.pretraining import notes, settings_that_differ

    figures = [group.figures() for group in groups]
    names = dict.fromkeys(name for of_group in figures for name in of_group)
    rows = [
        [
            group.name,
            str(len(group.runs)),
            f"{group.runs[0].step:,}",
            str(group.runs[0].length or ""),
            *(_figure(name, of_group.get(name)) for name in names),
        ]
        for group, of_group in zip(groups, figures, strict=True)
    ]
    headings = [name.replace("_", " ") for name in names]
    _print_table("held-out documents", ["run", "runs", "step", "length", *headings], rows)
    different = settings_that_differ(groups)
    if different:
        settings = [[name, *map(str, values)] for name, values in different.items()]
        _print_table("settings that differ", ["", *(group.name for group in groups)], settings)
    for line in notes(groups, different):
        print(f"note: {line}")


def _figure(name: str, figure: tuple[float, float | None] | None) -> str:
    if figure is None:
        return ""
    mean, spread = figure
    if name.endswith("accuracy"):
        return f"{mean:.1%}" if spread is None else f"{100 * mean:.1f} ± {100 * spread:.1f}%"
    return f"{mean:.4g}" if spread is None else f"{mean:.4g} ± {spread:.2g}"


def _print_scores(scores: "Sequence[Score]") -> None:
    from bert_jax.report.finetuning import by_model, find_columns

    columns = find_columns(scores)
    models = by_model(scores, columns)
    # A mean over tasks is meaningful only if every model has a score in each, and all are on the same scale.
    has_all = all(len(of_model) == len(columns) for of_model in models.values())
    averaged = len(columns) > 1 and has_all and len({score.in_percent for score in scores}) == 1
    rows = []
    for model, of_model in models.items():
        row = [model, *(_score(of_model.get(column)) for column in columns)]
        if averaged:
            row.append(f"{sum(score.row['mean'] for score in of_model.values()) / len(of_model):.4f}")
        rows.append(row)
    headings = [
        "\n".join(filter(None, (column.task, column.name, column.metric.replace("_", " "))))
        for column in columns
    ]
    _print_table("development set", ["model", *headings, *(["mean\nof tasks"] if averaged else [])], rows)


def _score(score: "Score | None") -> str:
    if score is None:
        return ""
    mean, seeds = f"{score.row['mean']:.4f}", score.row["seeds"]
    return mean if seeds == 1 else f"{mean} ± {score.row['stdev']:.4f}\n{seeds} seeds"


def _print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, show_edge=False)
    for number, heading in enumerate(headings):
        # On a narrow terminal, names of runs are broken, but never the words of headings.
        longest_word = max(map(len, heading.split()), default=0)
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(escape(heading), justify=justify, overflow="fold", min_width=longest_word)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)
