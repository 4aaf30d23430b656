"""Held-out metrics against steps, drawn by matplotlib."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.task import Metric
from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raises UserError if the suffix is not that of an image."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path} is not named as an image; valid: {', '.join(FORMATS)}")


Curves = Mapping[str, tuple[Sequence[Metric], Sequence[Sequence[Mapping[str, Any]]]]]
"""What the legend says -> the metrics of its objective, and of each of its runs the held-out rows of
`metrics.jsonl`."""


def draw_curves(path: Path, curves: Curves) -> None:
    """Writes a picture with a panel for each kind of metric, a colour for each name, a line for each run.

    Args:
      path: file to write, or to replace; its suffix is one of FORMATS.
    """
    from matplotlib import rc_context

    titles = dict.fromkeys(
        metric.panel
        for metrics, runs in curves.values()
        for metric in metrics
        if metric.panel and any(metric.name in row for rows in runs for row in rows)
    )
    if not titles:
        raise UserError("these runs have no held-out metric to draw")
    with rc_context({"text.parse_math": False}), atomically(path) as partial:  # a $ in a name is a $
        picture = _draw(list(titles), curves)
        picture.savefig(partial, format=path.suffix.removeprefix("."), dpi=110)


def _draw(titles: Sequence[str], curves: Curves) -> "Figure":
    # Not pyplot, which would look for a screen.
    from matplotlib.figure import Figure

    picture = Figure(figsize=(5 * len(titles), 4), layout="tight")
    panels = dict(zip(titles, picture.subplots(1, len(titles), squeeze=False)[0], strict=True))
    drawn: dict[str, dict[str, Any]] = {title: {} for title in titles}
    for number, (label, (metrics, runs)) in enumerate(curves.items()):
        style = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}
        for panel in titles:
            together = [metric for metric in metrics if metric.panel == panel]
            for metric, marker in zip(together, itertools.cycle(".x+^")):
                name = f"{label}, {metric.label}" if len(together) > 1 else label
                for rows in filter(None, runs):
                    steps = [row["step"] for row in rows]
                    values = [metric.scale * row.get(metric.name, math.nan) for row in rows]
                    (line,) = panels[panel].plot(steps, values, marker=marker, **style)
                    drawn[panel].setdefault(name, line)
    for title, panel in panels.items():
        panel.set(xlabel="steps", ylabel=title)
        panel.set_xlim(left=0)  # a single point would be on an axis of fractions of a step
        panel.grid(alpha=0.3)
        # By handle, as labels that begin with _ are left out otherwise.
        panel.legend(drawn[title].values(), drawn[title].keys(), frameon=False)
    return picture
