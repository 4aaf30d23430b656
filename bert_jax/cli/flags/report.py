"""The flags of `bert-jax report`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from data_pipeline.errors import UserError


@dataclasses.dataclass(frozen=True)
class Report:
    """Compare runs: the final metrics of each, and the settings that differ.

    For pretraining runs it shows the last held-out metrics; runs that differ only in the seed share a
    line. For fine-tuned models it shows the score on the development set by pretraining, way of fine-tuning,
    task and data, with the hyperparameters that are best on average over fine-tuning seeds; pretrainings that
    differ only in the seed share a line. Metrics of several seeds are mean ± standard deviation. For a
    named experiment with unchanged settings, the paper's number is shown below the score.
    """

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)"),
    ]
    """Work directories of `bert-jax pretrain`, or output directories of `bert-jax finetune`."""
    metric: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TASK=METRIC")] = ()
    """Metric to show for a task, such as mrpc=accuracy, instead of the one that chose its best trial; may be
    given several times."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the table as CSV, with a line for each run or trial."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also draw held-out accuracy and perplexity of pretraining runs: .png, .svg or .pdf."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("name the directory of a run, or of several")
        for text in self.metric:
            task, _, name = text.partition("=")
            if not (task and name):
                raise UserError(f"--metric {text}: give a task and its metric, such as mrpc=accuracy")

    @property
    def metrics(self) -> dict[str, str]:
        """Task -> name of the metric to show."""
        return {task: name for task, _, name in (text.partition("=") for text in self.metric)}
