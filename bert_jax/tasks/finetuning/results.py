"""Results of a grid's finished trials: the best one, the means over seeds, and a table on the terminal.

Every finished trial in the output directory counts, so that a grid may grow from run to run.
"""

import dataclasses
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bert_jax.finetuning_config import Trial
from bert_jax.task import Metric
from bert_jax.workdir.grid import BEST_DIRECTORY, REPORT_FILE, RESULT_FILE, RESULTS_FILE, TRIALS_DIRECTORY
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json

_FIELDS = [field.name for field in dataclasses.fields(Trial)]


def read_results(output: Path) -> list[dict[str, Any]]:
    """The results of the finished trials in the directory of a grid, sorted by their hyperparameters.

    Raises UserError for a file that is damaged.
    """
    files = (output / TRIALS_DIRECTORY).glob(f"*/{RESULT_FILE}")
    return sorted(map(_read_result, files), key=lambda result: dataclasses.astuple(trial_of(result)))


def _read_result(path: Path) -> dict[str, Any]:
    try:
        result = load_json(path)
        metrics = {name: math.nan if x is None else float(x) for name, x in result["metrics"].items()}
        trial_of(result)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{path} is damaged; remove it, and the trial is run again"
        raise bad_input(error, path, what) from None
    return {**result, "metrics": metrics}


def trial_of(result: Mapping[str, Any]) -> Trial:
    """The trial that a result belongs to."""
    return Trial(**{name: result[name] for name in _FIELDS if name in result})


def find_metric(metrics: Sequence[Metric], name: str | None) -> Metric:
    """The metric of a name; None: the first one. Raises UserError naming those there are."""
    if name is None:
        return metrics[0]
    for metric in metrics:
        if metric.name == name:
            return metric
    raise UserError(f"--metric is {name!r}; valid: {', '.join(metric.name for metric in metrics)}")


def score_of(result: Mapping[str, Any], metric: Metric) -> float:
    """A result's value of a metric; NaN if it has none."""
    return result["metrics"].get(metric.name, math.nan)


def best_of(results: Sequence[dict[str, Any]], metric: Metric) -> dict[str, Any]:
    """The result that is best by `metric`, NaN counting as worst; of ties the first."""
    return max(results, key=lambda result: metric.rank(score_of(result, metric)))


def report(output: Path, task: str, metric: Metric) -> None:
    """Prints a table of the trials, with seeds averaged, and the metrics of the best trial."""
    results = read_results(output)
    best = best_of(results, metric)
    _print_table(f"{task}: {metric.name} on the development set", by_seed(results, metric))
    _print_warnings(results)
    print_examples(best["examples"])
    # The metric that chose the best trial comes first.
    metrics = {metric.name: best["metrics"][metric.name], **best["metrics"]}
    shown = (f"{name} {_shown(name, value)}" for name, value in metrics.items())
    print(f"best: {best['trial']}: {'  '.join(shown)}")
    print(f"model and predictions: {output / BEST_DIRECTORY}")
    if (report_file := output / BEST_DIRECTORY / REPORT_FILE).exists():
        print(f"metrics of each type: {report_file}")
    print(f"all metrics: {output / RESULTS_FILE}")
    # `finetune` finds a task of one's own in the working directory too, and other commands do not.
    path = "PYTHONPATH=. " if ":" in task and "PYTHONPATH" not in os.environ else ""
    print(f"try it:  {path}bert-jax predict --model {shlex.quote(str(output))} --input FILE --output FILE")


def _shown(name: str, value: float) -> str:
    # SQuAD 2.0 counts questions.
    return f"{value:,.0f}" if name.endswith("total") else f"{value:.4g}"


def print_examples(rows: Sequence[Mapping[str, str]]) -> None:
    """Prints a table of the best model's predictions, if the task has such examples."""
    if not rows:
        return
    table = Table(title="the best model on the development set")
    for name in rows[0]:
        table.add_column(name, no_wrap=name in ("rank", "score", "relevance"))
    for row in rows:
        table.add_row(*map(escape, row.values()))
    Console().print(table)


def by_seed(results: Sequence[dict[str, Any]], metric: Metric) -> list[dict[str, Any]]:
    """One row for all trials that differ only in the seed."""
    groups: dict[Trial, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(dataclasses.replace(trial_of(result), seed=0), []).append(result)
    rows = []
    for trial, group in groups.items():
        values = [score_of(result, metric) for result in group]
        rows.append(
            {
                **({} if trial.layer is None else {"layer": trial.layer}),
                "learning_rate": trial.learning_rate,
                "batch_size": trial.batch_size,
                "epochs": trial.epochs,
                "seeds": len(values),
                "mean": float(np.mean(values)),
                "stdev": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                "best": max(values, key=metric.rank),
                "degenerate": sum(result["degenerate"] is not None for result in group),
                "diverged": sum(result["diverged"] is not None for result in group),
            }
        )
    return rows


def _print_table(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    layer = ("layer",) if "layer" in rows[0] else ()
    for name in (*layer, "learning rate", "batch", "epochs", "seeds", "mean", "stdev", "best"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(str(row[name]) for name in layer),
            f"{row['learning_rate']:g}",
            str(row["batch_size"]),
            f"{row['epochs']:g}",
            str(row["seeds"]),
            f"{row['mean']:.4g}",
            "" if row["stdev"] is None else f"{row['stdev']:.2g}",
            f"{row['best']:.4g}",
        )
    Console().print(table)


def _print_warnings(results: Sequence[dict[str, Any]]) -> None:
    """Prints each warning once, however many trials it is about."""
    trials: dict[str, list[str]] = {}
    for result in results:
        if result["diverged"]:
            trials.setdefault(f"diverged: {result['diverged']}", []).append(result["trial"])
        elif result["degenerate"]:
            trials.setdefault(result["degenerate"], []).append(result["trial"])
    for warning, names in trials.items():
        which = names[0] if len(names) == 1 else f"{len(names)} of {len(results)} trials"
        print(f"warning: {which}: {warning}")
