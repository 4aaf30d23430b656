"""Held-out accuracy and perplexity against steps, drawn by matplotlib (extra [plot])."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipeline.atomic import atomically
from data_pipeline.errors import UserError

FORMATS = (".png", ".svg", ".pdf")

_PANELS = (("accuracy", 100, "held-out accuracy, %"), ("perplexity", 1, "held-out perplexity"))


def check_plot(path: Path) -> None:
    """Raises UserError if the suffix is not a picture's, or matplotlib is not installed."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path} has no suffix of a picture; valid: {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(
            "a picture needs matplotlib, which is not installed: pip install -c constraints.txt -e '.[plot]'"
        ) from None


def draw_curves(path: Path, curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> None:
    """Writes a picture with a colour for each name and a line for each of its runs.

    Args:
      path: file to write, or to replace; its suffix is one of FORMATS.
      curves: what the legend says -> runs -> rows of `metrics.jsonl` whose split is `heldout`.
    """
    from matplotlib.figure import Figure

    # Not pyplot, which would look for a screen.
    picture = Figure(figsize=(10, 4), layout="tight")
    panels = picture.subplots(1, len(_PANELS))
    for number, (label, runs) in enumerate(curves.items()):
        for repeat, rows in enumerate(runs):
            for panel, (name, scale, _) in zip(panels, _PANELS, strict=True):
                panel.plot(
                    [row["step"] for row in rows],
                    [scale * _figure(row, name) for row in rows],
                    color=f"C{number % 10}",
                    linestyle=("-", "--", ":", "-.")[number // 10 % 4],
                    marker=".",
                    label="" if repeat else label,
                )
    for panel, (_, _, title) in zip(panels, _PANELS, strict=True):
        panel.set(xlabel="steps", ylabel=title)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    with atomically(path) as partial:
        picture.savefig(partial, format=path.suffix.removeprefix("."), dpi=110)


def _figure(row: Mapping[str, Any], name: str) -> float:
    return row[f"lm_{name}"] if f"lm_{name}" in row else row[f"mlm_{name}"]
