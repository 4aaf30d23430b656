"""Fine-tuned models side by side: what each pretraining reached on each task, over all its seeds.

Pretrainings that differ in nothing but the seed share a line, as far as it is known where a model comes from.
"""

import dataclasses
import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE
from bert_jax.task import Metric
from bert_jax.workdir.config_text import flatten
from bert_jax.workdir.finetuning import FineTuningRecord, read_record
from bert_jax.workdir.grid import RESULTS_FILE, find_trial, warn_if_unfinished
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json

# Settings that decide how texts become rows, and so also the fingerprint of the development set.
_ENCODED_BY = ("max_seq_length", "doc_stride", "max_query_length", "context", "entities")


@dataclasses.dataclass(frozen=True)
class Score:
    """The result of one `bert-jax finetune`, of one pretrained model on one task."""

    directory: Path
    record: FineTuningRecord
    variant: str
    """What the head sees and what is frozen, where that is not the last layer of a fine-tuned encoder."""
    data: str
    """Name of the data set: the last part of `--data`."""
    encoding: str
    """Hash of the tokenizer and of the settings that decide how texts become rows. Where it differs, the
    fingerprints of the same development set differ too."""
    metric: Metric
    row: dict[str, Any]
    """The hyperparameters with the best mean over their seeds: `mean`, `stdev`, `seeds`, ..."""
    trials: list[dict[str, Any]]
    """Every finished trial: its hyperparameters and seed, and all its `metrics`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """Comparable scores: on one task, by one metric, on one development set."""

    task: str
    metric: Metric
    name: str
    """Name that distinguishes it from other columns of the task; empty if there are none."""
    scores: list[Score]


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """The scores of one line in one column, one for each pretraining seed."""

    scores: list[Score]

    @property
    def mean(self) -> float:
        """Over pretraining seeds, of means over fine-tuning seeds."""
        return statistics.fmean(score.row["mean"] for score in self.scores)

    @property
    def stdev(self) -> float | None:
        """Sample standard deviation over pretraining seeds; None with fewer than two."""
        means = [score.row["mean"] for score in self.scores]
        return statistics.stdev(means) if len(means) > 1 else None

    @property
    def finetuning_stdev(self) -> float | None:
        """Sample standard deviation of fine-tuning seeds, pooled over pretraining seeds; None without
        repeats."""
        repeated = [score.row for score in self.scores if score.row["seeds"] > 1]
        if not repeated:
            return None
        squares = sum((row["seeds"] - 1) * row["stdev"] ** 2 for row in repeated)
        return math.sqrt(squares / sum(row["seeds"] - 1 for row in repeated))


def read_score(directory: Path, metrics: Mapping[str, str]) -> Score:
    """Reads the result of a `bert-jax finetune`; says on standard error if its grid is not finished.

    Args:
      directory: of the grid.
      metrics: task -> name of the metric to show in place of the one that chose the grid's best trial.

    Raises:
      UserError: the directory is not that of a `bert-jax finetune`, its task has no such metric, or no trial
      has a score.
    """
    path = directory / RESULTS_FILE
    trial = find_trial(directory)
    record = read_record(trial)
    try:
        results = load_json(path)
        metric, rows = _rows_by(results, metrics.get(record.task), directory)
        trials = [dict(trial) for trial in results["trials"]]
        # A single seed may be lucky where a mean over several is not.
        most = max(row["seeds"] for row in rows)
        row = max((row for row in rows if row["seeds"] == most), key=lambda row: metric.rank(row["mean"]))
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise bad_input(error, path, f"{path} is not what `bert-jax finetune` writes: {error!r}") from None
    warn_if_unfinished(directory)
    if row["mean"] is None:
        raise UserError(
            f"{directory}: each setting of the grid has a seed that diverged; there is no score to report"
        )
    return Score(
        directory=directory,
        record=record,
        variant=_variant(record.config),
        data=_data_name(record),
        encoding=_encoding(trial, record),
        metric=metric,
        row=row,
        trials=trials,
    )


def _rows_by(
    results: Mapping[str, Any], name: str | None, directory: Path
) -> tuple[Metric, list[dict[str, Any]]]:
    """A metric and the rows of results over seeds by it; None: the metric that chose the best trial."""
    # Grids of earlier versions have their own metric alone.
    by_metric = {one["metric"]["name"]: one for one in (*results.get("by_metric", ()), results)}
    name = name or results["metric"]["name"]
    if name not in by_metric:
        raise UserError(f"{directory} has no metric {name!r}; valid: {', '.join(by_metric)}")
    return Metric(**by_metric[name]["metric"]), by_metric[name]["rows"]


def _data_name(record: FineTuningRecord) -> str:
    """The last part of `--data` and, if the development set was a fold of one file, which."""
    name, fold = Path(record.data).name, record.settings.get("dev_fold")
    return f"{name} fold {fold}" if name and fold else name


def _variant(config: FineTuningConfig) -> str:
    """The settings of features and layer rates that are not the default, as `name value, name value`."""
    default = FineTuningConfig()
    usual, settings = (flatten(c.features, "features") | flatten(c.rates) for c in (default, config))
    if not config.features.lstm_layers:
        del settings["features.lstm_width"]  # it has no effect
    if config.features.layers != default.features.layers:
        settings = {n: v for n, v in settings.items() if not n.startswith("features.layers")}
        if config.features.combine != "each":  # then the layer is a hyperparameter
            settings = {"features.layers": " ".join(map(str, config.features.layers)), **settings}
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value != usual.get(name))


def _encoding(trial: Path, record: FineTuningRecord) -> str:
    tokenizer = trial / TOKENIZER_FILE
    settings = {name: record.settings[name] for name in _ENCODED_BY if name in record.settings}
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    total.update(tokenizer.read_bytes() if tokenizer.exists() else b"")
    return total.hexdigest()


def find_columns(scores: Sequence[Score]) -> list[Column]:
    """The columns of a table of these scores, in the order in which they first occur."""
    groups: list[list[Score]] = []
    for score in scores:
        group = next((group for group in groups if _belongs(score, group)), None)
        if group is None:
            groups.append([score])
        else:
            group.append(score)
    columns = []
    for group in groups:
        task = group[0].record.task
        namesakes = [other for other in groups if other[0].record.task == task]
        columns.append(Column(task, group[0].metric, _name(group, namesakes), group))
    return columns


def _belongs(score: Score, group: Sequence[Score]) -> bool:
    """Whether a score has the group's task, metric and development set.

    Models with different vocabularies encode the same set differently; then the set's name is compared.
    """
    if (score.record.task, score.metric) != (group[0].record.task, group[0].metric):
        return False
    if alike := {other.record.dev_fingerprint for other in group if other.encoding == score.encoding}:
        return score.record.dev_fingerprint in alike
    # The same benchmark's directory is in upper or lower case, depending on where it was fetched.
    return score.data.lower() in {other.data.lower() for other in group}


def _name(group: Sequence[Score], namesakes: Sequence[Sequence[Score]]) -> str:
    """Name that tells a group from others of its task: the data set's, or the first run's directory."""
    if len(namesakes) == 1:
        return ""
    ways: list[Callable[[Score], str]] = [lambda score: score.data, lambda score: score.directory.name]
    for way in ways:
        names = [way(other[0]) for other in namesakes]
        if all(names) and len(set(names)) == len(names):
            return way(group[0])
    return str(group[0].directory)


def by_line(scores: Sequence[Score], columns: Sequence[Column]) -> dict[str, dict[Column, Cell]]:
    """Name of a line -> column -> its scores.

    A line is a pretraining, whatever its seed, and a way of fine-tuning. Where it is not known which
    pretraining a model comes from, the model stands for it; one with several names, such as copies in other
    directories, is listed under the first. Two scores of one seed in a column make two lines, named by their
    directories.
    """
    column_of = {score.directory: column for column in columns for score in column.scores}
    lines: dict[tuple[Any, ...], list[Score]] = {}
    for score in scores:
        lines.setdefault((*_pretraining(score), score.variant), []).append(score)
    names = _distinct_names([of_line[0] for of_line in lines.values()])
    found: dict[str, dict[Column, Cell]] = {}
    for name, of_line in zip(names, lines.values(), strict=True):
        times = Counter((column_of[score.directory], _repeat(score)) for score in of_line)
        for score in of_line:
            column = column_of[score.directory]
            is_double = times[column, _repeat(score)] > 1
            cells = found.setdefault(f"{name} ({score.directory})" if is_double else name, {})
            cells.setdefault(column, Cell([])).scores.append(score)
    return found


def _pretraining(score: Score) -> tuple[Any, ...]:
    """What the scores of one pretraining have in common, whatever its seed."""
    known = score.record.pretraining
    if known is None:
        return (score.record.model_fingerprint,)
    return (known.experiment, known.step, known.settings, known.given)


def _repeat(score: Score) -> Any:
    """What tells the scores of one line and column apart: the pretraining's seed, or else the model."""
    known = score.record.pretraining
    return known.seed if known else score.record.model_fingerprint


def _distinct_names(firsts: Sequence[Score]) -> list[str]:
    """A name for each line: the experiment or the model, then the variant, and what else tells it apart."""
    ways: tuple[Callable[[FineTuningRecord], str], ...] = (
        lambda record: record.pretraining.experiment if record.pretraining else record.trained_from,
        lambda record: record.trained_from,
        lambda record: f"{record.trained_from} {record.model_fingerprint[:8]}",
    )
    # A pretraining has one name in all its lines.
    of_models = {_pretraining(first): first.record for first in firsts}
    names: dict[tuple[Any, ...], str] = {}
    for way in ways:
        tried = {key: way(record) for key, record in of_models.items()}
        times = Counter(tried.values())
        for key, name in tried.items():
            if key not in names and times[name] == 1 and name not in names.values():
                names[key] = name
    return [
        "\n".join(filter(None, (names.get(_pretraining(first), str(first.directory)), first.variant)))
        for first in firsts
    ]


def table(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """One row for each finished trial, for a file: `score` is the metric to choose by; all metrics follow."""
    has_layers = any("layer" in trial for score in scores for trial in score.trials)
    return [
        {
            "run": str(score.directory),
            "model": record.trained_from,
            "model_fingerprint": record.model_fingerprint[:12],
            "experiment": record.pretraining.experiment if record.pretraining else "",
            "pretraining_seed": record.pretraining.seed if record.pretraining else "",
            "variant": score.variant,
            "task": record.task,
            "data": score.data,
            "dev_fingerprint": record.dev_fingerprint[:12],
            **{name: trial[name] for name in ("learning_rate", "batch_size", "epochs", "seed")},
            **({"layer": trial.get("layer", "")} if has_layers else {}),
            "metric": score.metric.name,
            "score": trial["metrics"].get(score.metric.name),
            **trial["metrics"],
        }
        for score, record in ((score, score.record) for score in scores)
        for trial in score.trials
    ]
