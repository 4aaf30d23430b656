"""Pictures of a study, drawn by matplotlib: curves with bands over seeds, differences with intervals."""

import io
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, LogLocator

from bert_jax.objectives.experiment import Experiment
from bert_jax.studies.results import PretrainedRun, StudyResults
from bert_jax.studies.tables import Cell, StudyTable, several_steps
from bert_jax.task import Metric
from bert_jax.training.accounting import flops_done, run_flops
from data_pipeline.atomic import write_bytes

_INK = "#010203"
"""Colour of text and axes, which a page replaces by its own."""
_PAPER = "#fffffe"
"""Colour of the background, which a page leaves out."""
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlesize": 10,
    "grid.alpha": 0.25,
    **{f"{axis}tick.minor.{what}": 3.5 for axis in "xy" for what in ("size", "pad")},  # as major ones
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa8800", "#66aacc", "#aa3377", "#888888", "#994400")
# The first for the first so many arms, the next for those that have their colours again.
_LINES: Sequence[Any] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v")
_WIDTH = re.compile(r'width="([0-9.]+)pt"')

Position: TypeAlias = Callable[[Experiment, int], float]
"""(settings, step) -> where the step stands on the horizontal axis."""


def draw_figures(results: StudyResults, table: StudyTable) -> dict[str, Figure]:
    """Name of a file -> figure, of those that the results have something for."""
    found: dict[str, Figure] = {}
    experiments = results.plan.experiments
    arms = experiments.values()
    measured = {heading: cells for heading, cells in table.by_step.items() if cells}
    series = {heading: cells for heading, cells in measured.items() if several_steps(cells)}
    with matplotlib.rc_context(_STYLE):
        if any(cell.difference for cell in table.cells.values()):
            found["differences"] = _differences(table)
        if measured and _differ([run_flops(experiment) for experiment in arms]):
            found["scores-flops"] = _scores(experiments, measured, "FLOPs of pretraining", flops_done)
        if series:
            found["scores-steps"] = _scores(experiments, series, "pretraining steps", _steps)
        if any(run.heldout for run in results.runs):
            found["pretraining-steps"] = _pretraining(results, "steps", _steps)
            if _differ([flops_done(experiment, 1) for experiment in arms]):
                found["pretraining-flops"] = _pretraining(results, "FLOPs", flops_done)
        for figure in found.values():
            # Once, and not again for each file.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
    return found


FIGURE_KINDS = ("svg", "png")
"""Endings of the files of a figure."""


def write_figures(directory: Path, figures: Mapping[str, Figure]) -> dict[str, str]:
    """Writes each figure as .svg and .png; returns the SVG texts by name, always the same."""
    directory.mkdir(exist_ok=True)
    texts = {}
    for name, figure in figures.items():
        text, image = io.StringIO(), io.BytesIO()
        # Without a salt of its own, ids would be the same in two figures of one page, or change each time.
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
            figure.savefig(text, format="svg", facecolor=_PAPER, metadata={"Date": None})
            figure.savefig(image, format="png", dpi=130, facecolor=_PAPER)
        texts[name] = text.getvalue()
        write_bytes(directory / f"{name}.svg", texts[name].encode())
        write_bytes(directory / f"{name}.png", image.getvalue())
    return texts


def for_page(svg: str) -> str:
    """The SVG text without header and background, whose text and axes have the colour of the page's text.

    On a narrow page it shrinks to 70%, and no further.
    """
    element = svg[svg.index("<svg") :].replace(_INK, "currentColor").replace(_PAPER, "none")
    return _WIDTH.sub(
        lambda found: f'{found[0]} style="min-width: {0.7 * float(found[1]):.0f}pt"', element, 1
    )


def _differ(costs: Sequence[float]) -> bool:
    """Whether arms differ in cost so much that a picture shows it."""
    return max(costs) > 1.02 * min(costs)


def _steps(_: Experiment, step: int) -> float:
    return step


def _panels(count: int, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    figure = Figure(figsize=(4.8 * columns, height * rows + 0.5), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def _differences(table: StudyTable) -> Figure:
    """For each column the differences to the base, with their intervals, and the paper's as a diamond."""
    study, all_arms = table.study, list(table.study.arms)
    arms = [arm for arm in all_arms if arm != study.base]
    figure, panels = _panels(len(study.measures), 0.9 + 0.28 * len(arms))
    for panel, column in zip(panels, study.measures, strict=True):
        for row, arm in enumerate(arms):
            cell = table.cells.get((arm, column.column))
            if cell is None:
                continue
            if cell.difference is not None:
                colour = _COLOURS[all_arms.index(arm) % len(_COLOURS)]
                inside = colour if cell.difference.is_distinguishable else _PAPER
                if cell.difference.interval:
                    panel.plot(cell.difference.interval, (row, row), color=colour, linewidth=2)
                panel.plot(cell.difference.mean, row, marker="o", color=colour, markerfacecolor=inside)
            if cell.published_difference is not None:
                panel.plot(cell.published_difference, row, marker="D", color=_INK, markersize=4, alpha=0.6)
        panel.axvline(0, color=_INK, linewidth=0.8, alpha=0.6)
        panel.set_yticks(range(len(arms)), arms)
        panel.set_ylim(len(arms) - 0.5, -0.5)
        panel.set_title(f"{column.column}: difference to {study.base}")
    ours: dict[str, Any] = {"color": _COLOURS[6], "marker": "o"}
    differences = [cell.difference for cell in table.cells.values() if cell.difference]
    handles = []
    if any(difference.is_distinguishable for difference in differences):
        handles.append(Line2D([], [], **ours, label="ours, 95% interval"))
    if not all(difference.is_distinguishable for difference in differences):
        has_intervals = any(difference.interval for difference in differences)
        label = "95% interval contains 0, or none" if has_intervals else "ours, too few seeds for an interval"
        handles.append(Line2D([], [], **ours, markerfacecolor=_PAPER, label=label))
    if any(cell.published_difference is not None for cell in table.cells.values()):
        diamond = Line2D([], [], color=_INK, marker="D", markersize=4, alpha=0.6, linestyle="", label="paper")
        handles.append(diamond)
    # Three beside each other are wider than one panel.
    figure.legend(handles=handles, loc="outside lower center", ncols=1 + min(len(panels), 2), frameon=False)
    return figure


def _scores(
    experiments: Mapping[str, Experiment],
    by_column: Mapping[str, Mapping[tuple[str, int], Cell]],
    label: str,
    position: Position,
) -> Figure:
    """For each column the arms by what their pretraining cost; bars and bands are the range of the seeds."""
    figure, panels = _panels(len(by_column))
    at_the_end = [position(experiment, experiment.num_train_steps) for experiment in experiments.values()]
    for panel, (heading, cells) in zip(panels, by_column.items(), strict=True):
        for number, (arm, experiment) in enumerate(experiments.items()):
            steps = sorted(step for other, step in cells if other == arm)
            points = {position(experiment, step): list(cells[arm, step].values.values()) for step in steps}
            _band(panel, points, number, arm)
        panel.set_title(heading)
        if max(at_the_end) > 10 * min(at_the_end):
            panel.set_xscale("log")
            panel.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))  # more labels would touch each other
            panel.xaxis.set_major_formatter("{x:.0e}")
            panel.xaxis.set_minor_formatter("{x:.0e}")
    _finish(figure, panels, label)
    return figure


def _pretraining(results: StudyResults, label: str, position: Position) -> Figure:
    """The held-out metrics of pretraining; bands are the range of the seeds."""
    experiments = results.plan.experiments
    # Metrics of one name may differ: the generator of `rtd` has an `mlm_accuracy` of its own.
    metrics = list(dict.fromkeys(m for run in experiments.values() for m in run.objective.metrics))
    labels = [metric.label for metric in metrics]
    figure, panels = _panels(len(metrics))
    for panel, metric in zip(panels, metrics, strict=True):
        for number, (arm, experiment) in enumerate(experiments.items()):
            if metric not in experiment.objective.metrics:
                continue
            runs = [run for run in results.runs if run.arm == arm]
            points = {position(experiment, step): values for step, values in _heldout(runs, metric).items()}
            _band(panel, points, number, arm)
        label_of_panel = metric.label
        if labels.count(metric.label) > 1:  # "MLM perplexity", "LTR perplexity"
            objective, _, quantity = metric.name.partition("_")
            label_of_panel = f"{objective.upper()} {quantity}"
        panel.set_title(f"held-out {label_of_panel}{', %' if metric.scale == 100 else ''}")
        if metric.better == "lower":
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(LogFormatter())
            panel.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
    _finish(figure, panels, label)
    return figure


def _heldout(runs: Sequence[PretrainedRun], metric: Metric) -> dict[int, list[float]]:
    """Step -> the metric of each run that has it."""
    points: dict[int, list[float]] = {}
    for run in runs:
        for row in run.heldout:
            if row.get(metric.name) is not None:
                points.setdefault(row["step"], []).append(metric.scale * row[metric.name])
    return dict(sorted(points.items()))


def _band(panel: Axes, points: Mapping[float, Sequence[float]], number: int, label: str) -> None:
    """A line through the means, and the range around it; a point and a bar where there is but one.

    Args:
      points: place on the horizontal axis -> values.
      number: of the arm, which has its own colour with its own line or marker.
    """
    again, of_colour = divmod(number, len(_COLOURS))
    colour, again = _COLOURS[of_colour], again % len(_LINES)
    costs = [cost for cost, values in points.items() if values]
    if not costs:
        return
    low, mean, high = ([choose(points[cost]) for cost in costs] for choose in (min, statistics.fmean, max))
    marker = _MARKERS[again] if len(costs) == 1 else ""
    panel.plot(costs, mean, color=colour, linestyle=_LINES[again], label=label, marker=marker, markersize=5)
    if len(costs) == 1:
        panel.vlines(costs, low, high, color=colour)
    else:
        panel.fill_between(costs, low, high, color=colour, alpha=0.2, linewidth=0)


def _finish(figure: Figure, panels: Sequence[Axes], label: str) -> None:
    """Labels the horizontal axes, and adds one legend for all panels."""
    handles: dict[str, Any] = {}
    for panel in panels:
        panel.set_xlabel(label)
        for handle, arm in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(arm, handle)
    if handles:
        columns = 2 * min(len(panels), 2)
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False
        )
