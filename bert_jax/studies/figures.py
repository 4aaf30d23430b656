"""Pictures of a study, drawn by matplotlib: curves with bands over seeds, differences with intervals."""

import io
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from bert_jax.studies.results import PretrainedRun, StudyResults
from bert_jax.studies.tables import Curve, StudyTable, curves
from data_pipeline.atomic import write_bytes

_INK = "#010203"
"""Colour of text and axes, which a page replaces by its own."""
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa8800", "#66aacc", "#aa3377", "#888888", "#994400")
_MOST_PANELS = 6


def draw_figures(results: StudyResults, table: StudyTable) -> dict[str, Figure]:
    """Name of a file -> figure, of those that the results have something for."""
    found: dict[str, Figure] = {}
    with matplotlib.rc_context(_STYLE):
        if any(place.difference for place in table.places.values()):
            found["differences"] = _differences(table)
        if any(run.heldout for run in results.runs):
            found["pretraining"] = _pretraining(results)
        for column in table.columns:
            of_column = curves(results, column)
            if any(len(curve.points) > 1 for curve in of_column):
                found[f"steps-{column.name}"] = _against_steps(of_column, column.column, results)
        if len({run.flops for run in results.runs if run.step}) > 1:
            found["flops"] = _against_flops(results, table)
    return found


def write_figures(directory: Path, figures: Mapping[str, Figure]) -> None:
    """Writes each figure as .svg and .png."""
    directory.mkdir(exist_ok=True)
    for name, figure in figures.items():
        write_bytes(directory / f"{name}.svg", as_svg(name, figure).encode())
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=130, facecolor="white")
        write_bytes(directory / f"{name}.png", image.getvalue())


def as_svg(name: str, figure: Figure) -> str:
    """A figure as SVG text, always the same; its background is transparent."""
    text = io.StringIO()
    # Without a salt of its own, ids would be the same in two figures of one page, or change each time.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()


def for_page(svg: str) -> str:
    """The SVG text without its header, whose text and axes have the colour of the page's text."""
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")


def _panels(count: int, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    figure = Figure(figsize=(4.6 * columns, height * rows), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def _differences(table: StudyTable) -> Figure:
    """For each column the differences to the base, with their intervals, and the paper's as a diamond."""
    arms = [arm for arm in table.arms if arm != table.base]
    figure, panels = _panels(len(table.columns), 0.9 + 0.28 * len(arms))
    for panel, column in zip(panels, table.columns, strict=True):
        for row, arm in enumerate(arms):
            place = table.places.get((arm, column.column))
            if place is None or place.difference is None:
                continue
            mean, interval = place.difference.mean, place.difference.interval
            colour = _COLOURS[table.arms.index(arm) % len(_COLOURS)]
            if interval:
                panel.plot(interval, (row, row), color=colour, linewidth=2, solid_capstyle="butt")
            panel.plot(mean, row, marker="o", color=colour, markersize=5)
            if place.published_difference is not None:
                panel.plot(place.published_difference, row, marker="D", color=_INK, markersize=4, alpha=0.6)
        panel.axvline(0, color=_INK, linewidth=0.8, alpha=0.6)
        panel.set_yticks(range(len(arms)), arms)
        panel.set_ylim(len(arms) - 0.5, -0.5)
        panel.set_title(f"{column.column}: difference to {table.base}")
    return figure


def _pretraining(results: StudyResults) -> Figure:
    """The held-out metrics of pretraining against steps, by objective; bands are the range of the seeds."""
    names: dict[str, str] = {}
    for experiment in results.experiments.values():
        for metric in experiment.objective.metrics:
            names.setdefault(metric.name, metric.label)
    shown = list(names)[:_MOST_PANELS]
    figure, panels = _panels(len(shown))
    for panel, name in zip(panels, shown, strict=True):
        for number, arm in enumerate(results.experiments):
            runs = [run for run in results.runs if run.arm == arm]
            points = _points(runs, name)
            if points:
                _band(panel, points, _COLOURS[number % len(_COLOURS)], arm)
        panel.set_xlabel("steps")
        panel.set_title(f"held-out {names[name]}" if names[name] != "perplexity" else f"held-out {name}")
        if name.endswith("perplexity"):
            panel.set_yscale("log")
    _legend(figure, panels)
    return figure


def _points(runs: Sequence[PretrainedRun], metric: str) -> dict[float, list[float]]:
    points: dict[float, list[float]] = {}
    for run in runs:
        for row in run.heldout:
            if metric in row:
                points.setdefault(row["step"], []).append(row[metric])
    return dict(sorted(points.items()))


def _band(panel: Axes, points: Mapping[float, Sequence[float]], colour: str, label: str) -> None:
    steps = list(points)
    panel.plot(steps, [statistics.fmean(values) for values in points.values()], color=colour, label=label)
    low, high = ([choose(values) for values in points.values()] for choose in (min, max))
    panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _against_steps(found: Sequence[Curve], heading: str, results: StudyResults) -> Figure:
    figure, (panel,) = _panels(1)
    for number, curve in enumerate(found):
        points = {float(step): list(seeds.values()) for step, seeds in curve.points.items() if seeds}
        if points:
            _band(panel, points, _COLOURS[number % len(_COLOURS)], curve.arm)
    panel.set_xlabel("pretraining steps")
    panel.set_title(heading)
    _legend(figure, [panel])
    return figure


def _against_flops(results: StudyResults, table: StudyTable) -> Figure:
    """For each column the arms by what their pretraining cost; bars are standard deviations over seeds."""
    figure, panels = _panels(len(table.columns))
    flops = {arm: max(run.flops for run in results.runs if run.arm == arm) for arm in table.arms}
    for panel, column in zip(panels, table.columns, strict=True):
        for number, arm in enumerate(table.arms):
            place = table.places.get((arm, column.column))
            if place is not None and place.mean is not None and flops[arm]:
                colour = _COLOURS[number % len(_COLOURS)]
                panel.errorbar(flops[arm], place.mean, place.stdev or 0, fmt="o", color=colour, label=arm)
        if max(flops.values()) > 10 * min(filter(None, flops.values())):
            panel.set_xscale("log")
        panel.set_xlabel("FLOPs of pretraining")
        panel.set_title(column.column)
    _legend(figure, panels)
    return figure


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=8
        )
