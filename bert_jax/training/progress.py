"""Progress output of a run: a live line on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn
from rich.table import Column
from rich.text import Text

from bert_jax.task import Metric

_TIMING = (
    ("sequences_per_second", "{:,.0f} seq/s"),
    ("tokens_per_second", "{:,.0f} tokens/s"),
    ("model_flops_per_second", "{:.3g} FLOP/s"),
    ("fraction_of_peak", "{:.0%} of peak"),
    ("waiting_for_data", "{:.1%} waiting for data"),
)


class ProgressDisplay:
    """Shows steps, metrics and the time left, until it is closed."""

    def __init__(self, first_step: int, num_train_steps: int, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._last = num_train_steps
        self._console = Console(soft_wrap=True, highlight=False)
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(bar_width=6, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            _MetricsColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("compiling", total=num_train_steps, completed=first_step, left="")
        self._is_compiling = True
        self._bar.start()

    def close(self) -> None:
        self._bar.stop()

    def advance_to(self, step: int) -> None:
        """Moves the bar; cheap enough for every step."""
        self._bar.update(self._task, completed=step)
        if self._is_compiling:
            self._is_compiling = False
            self._bar.update(self._task, description="training")

    def show_time_left(self, step: int, seconds: float | None) -> None:
        """Shows how long the remaining steps will take, before the first row tells it."""
        if seconds is None:
            return
        if self._console.is_terminal:
            self._bar.update(self._task, left=f"{duration(seconds)} left")
        else:
            self._console.print(f"step {step}/{self._last}: about {duration(seconds)} left", markup=False)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Says on the live line, in place of the time left, that an evaluation is under way."""
        left = self._bar.tasks[self._task].fields["left"]
        self._bar.update(self._task, left="evaluating")
        yield
        self._bar.update(self._task, left=left)

    def show(self, row: Mapping[str, Any]) -> None:
        """Shows a row of metrics: training rows on the live line, evaluations as lines that stay."""
        text, left = describe_row(row, self._metrics), _time_left(row)
        if row["split"] == "train" and self._console.is_terminal:
            self._bar.update(self._task, description=text, left=f"{left} left" if left else "")
        else:
            text += f", {left} left" if left else ""
            self._console.print(f"step {row['step']}/{self._last} {row['split']}: {text}", markup=False)


def describe_row(row: Mapping[str, Any], metrics: Sequence[Metric]) -> str:
    """The loss, these metrics and the throughput of a row, in one line."""
    values = {**row, **row.get("timing", {})}
    forms = [("loss", "loss {:.3f}"), *((m.name, f"{m.label} {m.form}") for m in metrics), *_TIMING]
    return ", ".join(form.format(values[name]) for name, form in forms if values.get(name) is not None)


def duration(seconds: float) -> str:
    """Seconds as text, such as `2 h 5 min`, `5 min` or `5 s`."""
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"


def _time_left(row: Mapping[str, Any]) -> str:
    # Not rich's own estimate, which knows only the speed of the present phase.
    seconds = row.get("timing", {}).get("seconds_left")
    return duration(seconds) if seconds else ""


class _MetricsColumn(TextColumn):
    """The metrics: the only column that is cut short on a narrow terminal."""

    def __init__(self) -> None:
        super().__init__("{task.description}", table_column=Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        # rich narrows only columns that may wrap; this one's text is then cut instead of wrapped.
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
