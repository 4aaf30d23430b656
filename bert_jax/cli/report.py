"""`bert-jax report RUN...`: compares runs in a table, a CSV file and a plot."""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bert_jax.cli.flags.report import Report
from bert_jax.report import finetuning, pretraining
from bert_jax.report.curves import check_plot, draw_curves
from bert_jax.report.finetuning import Cell, Score, by_line, find_columns, read_score
from bert_jax.report.pretraining import Group, group_runs, notes, read_run, settings_that_differ
from bert_jax.studies.directory import STUDY_FILE
from bert_jax.study import Finetuned, published_of
from bert_jax.workdir.grid import RESULT_FILE, RESULTS_FILE, TRIALS_DIRECTORY, not_finished
from bert_jax.workdir.pretraining_identity import hash_of_settings
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError
from experiments import EXPERIMENTS, STUDIES


def run(args: Report) -> None:
    """Prints the tables and writes the files.

    Raises:
      UserError: no run in a directory, a fine-tuning that is not finished, a plot that cannot be made.
    """
    directories = list(dict.fromkeys(args.runs))
    finetuned = [directory for directory in directories if (directory / RESULTS_FILE).exists()]
    pretrained = [directory for directory in directories if directory not in finetuned]
    _check_files(args, pretrained, finetuned)
    groups = group_runs(map(read_run, pretrained))
    scores = [read_score(directory, args.metrics) for directory in finetuned]
    if unused := args.metrics.keys() - {score.record.task for score in scores}:
        raise UserError(f"--metric names {min(unused)}, but no run of that task was given")
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
        if not pretrained:
            raise UserError("--plot draws the curves of pretraining runs; name one")
        check_plot(args.plot)
    for directory in pretrained:
        if (directory / STUDY_FILE).exists():
            raise UserError(
                f"{directory} is the directory of a study; add --report to its `bert-jax study` command"
            )
        if (directory / RESULT_FILE).exists():
            raise UserError(f"{directory} is one trial; name the --output of its `bert-jax finetune`")
        if (directory / TRIALS_DIRECTORY).is_dir():
            raise not_finished(directory)
        if not (directory / CONFIG_FILE).exists() and any(directory.glob(f"*/{CONFIG_FILE}")):
            raise UserError(f"{directory} is no run, but holds some; name them: {directory}/*")


def _write_files(args: Report, groups: Sequence[Group], scores: Sequence[Score]) -> None:
    if args.csv:
        _write_csv(args.csv, pretraining.table(groups) if groups else finetuning.table(scores))
        print(f"wrote {args.csv}")
    if args.plot:
        drawn = {
            group.name: (group.objective.metrics, [run.own_heldout for run in group.runs]) for group in groups
        }
        draw_curves(args.plot, drawn)
        print(f"wrote {args.plot}")


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    with atomically(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _print_groups(groups: Sequence[Group]) -> None:
    scores = [group.metrics() for group in groups]
    metrics = list(dict.fromkeys(metric for of_group in scores for metric in of_group))
    rows = [
        [
            group.name,
            str(len(group.runs)),
            f"{group.runs[0].step:,}",
            str(group.runs[0].length or ""),
            *(metric.show(*of_group[metric]) if metric in of_group else "" for metric in metrics),
        ]
        for group, of_group in zip(groups, scores, strict=True)
    ]
    # One name may be that of two metrics, such as ELECTRA's generator's MLM accuracy and BERT's.
    names = [metric.name for metric in metrics]
    headings = [
        metric.label if names.count(metric.name) > 1 else metric.name.replace("_", " ") for metric in metrics
    ]
    _print_table("held-out documents", ["run", "runs", "step", "length", *headings], rows)
    different = settings_that_differ(groups)
    if different:
        _print_settings([group.name for group in groups], different)
    for line in notes(groups, different):
        print(f"note: {line}")


def _print_settings(names: Sequence[str], different: Mapping[str, Sequence[Any]]) -> None:
    """Prints the settings of runs of these names, in several tables if the terminal is too narrow for one."""
    console, first = Console(), 0
    unlimited = console.options.update_width(sys.maxsize)
    while first < len(names):
        for last in range(len(names), first, -1):
            rows = [[setting, *map(str, values[first:last])] for setting, values in different.items()]
            table = _make_table("settings that differ", ["", *names[first:last]], rows)
            table.columns[0].no_wrap = True
            if console.measure(table, options=unlimited).maximum <= console.width:
                break
        console.print(table)
        first = last


def _print_scores(scores: Sequence[Score]) -> None:
    columns = find_columns(scores)
    lines = by_line(scores, columns)
    # A mean over tasks is meaningful only if every line has a score in each, and all are on the same scale
    # and better in the same direction.
    has_all = all(len(of_line) == len(columns) for of_line in lines.values())
    scales = {(score.metric.in_percent, score.metric.better) for score in scores}
    averaged = len(columns) > 1 and has_all and len(scales) == 1
    rows = []
    for name, of_line in lines.items():
        row = [name, *(_show(of_line.get(column)) for column in columns)]
        if averaged:
            row.append(f"{sum(cell.mean for cell in of_line.values()) / len(of_line):.4f}")
        rows.append(row)
    headings = [
        "\n".join(filter(None, (column.task, column.name, column.metric.name.replace("_", " "))))
        for column in columns
    ]
    _print_table("development set", ["model", *headings, *(["mean\nof tasks"] if averaged else [])], rows)


def _show(cell: Cell | None) -> str:
    """Mean and deviation over pretraining seeds, then over fine-tuning seeds, then the paper's number."""
    if cell is None:
        return ""
    lines = [f"{cell.mean:.4f}"]
    seeds = sorted({score.row["seeds"] for score in cell.scores})
    finetuning_seeds = "-".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    of_finetuning = "" if cell.finetuning_stdev is None else f" ± {cell.finetuning_stdev:.4f}"
    if cell.stdev is not None:
        lines[0] += f" ± {cell.stdev:.4f}"
        lines.append(f"{len(cell.scores)} pretrainings")
        if seeds[-1] > 1:
            lines.append(f"{finetuning_seeds} seeds each{of_finetuning}")
    elif seeds[-1] > 1:
        lines[0] += of_finetuning
        lines.append(f"{finetuning_seeds} seeds")
    published = _published(cell.scores[0])
    return "\n".join([*lines, *([] if published is None else [f"paper {published:.4f}"])])


def _published(score: Score) -> float | None:
    """What a paper reports for a score's experiment as it is, in the unit of its metric; None if nothing."""
    known = score.record.pretraining
    if known is None or score.variant or known.experiment not in EXPERIMENTS:
        return None
    experiment = EXPERIMENTS[known.experiment]
    if (known.settings, known.step) != (hash_of_settings(experiment), experiment.num_train_steps):
        return None
    for _, measure, value in published_of(experiment, STUDIES.values()):
        if not isinstance(measure, Finetuned) or measure.variant:
            continue
        # Named entities are those of many data sets.
        if measure.task == "ner" and measure.data != score.data:
            continue
        # What is published is of SQuAD 1.1, where every question has an answer.
        if measure.task == "squad" and any("HasAns_f1" in trial["metrics"] for trial in score.trials):
            continue
        if (measure.task, measure.metric) == (score.record.task, score.metric.name):
            return value if score.metric.in_percent else value / 100
    return None


def _print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    Console().print(_make_table(title, headings, rows))


def _make_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, show_edge=False)
    for number, heading in enumerate(headings):
        # On a narrow terminal, names of runs are broken, but never the words of headings.
        longest_word = max(map(len, heading.split()), default=0)
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(escape(heading), justify=justify, overflow="fold", min_width=longest_word)
    for row in rows:
        table.add_row(*map(escape, row))
    return table
