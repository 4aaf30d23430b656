"""Fine-tuned models side by side: what each pretrained model reached on each task."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.formats.huggingface_tokenizer import TOKENIZER_FILE
from bert_jax.task import Metric
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
    task: str
    model: str
    """Name of the pretrained model: its directory's name."""
    fingerprint: str
    """Hash of the pretrained parameters; names can be equal, since many directories are called `export`."""
    data: str
    """Name of the data set: the last part of `--data`."""
    dev_fingerprint: str
    """Hash of the encoded development set."""
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
        trials = results["trials"]
        row = max(rows, key=lambda row: metric.rank(row["mean"]))
    except UserError:
        raise
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise bad_input(error, path, f"{path} is not what `bert-jax finetune` writes: {error!r}") from None
    warn_if_unfinished(directory)
    if row["mean"] is None:
        raise UserError(f"{directory}: a seed of every trial diverged; there is no score to report")
    return Score(
        directory=directory,
        task=record.task,
        model=record.trained_from,
        fingerprint=record.model_fingerprint,
        data=_data_name(record),
        dev_fingerprint=record.dev_fingerprint,
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
    names = [_name(group, [other for other in groups if other[0].task == group[0].task]) for group in groups]
    return [
        Column(group[0].task, group[0].metric, name, group) for group, name in zip(groups, names, strict=True)
    ]


def _belongs(score: Score, group: Sequence[Score]) -> bool:
    """Whether a score has the group's task, metric and development set.

    Models with different vocabularies encode the same set differently; then the set's name is compared.
    """
    if (score.task, score.metric) != (group[0].task, group[0].metric):
        return False
    if alike := {other.dev_fingerprint for other in group if other.encoding == score.encoding}:
        return score.dev_fingerprint in alike
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


def by_model(scores: Sequence[Score], columns: Sequence[Column]) -> dict[str, dict[Column, Score]]:
    """Model -> column -> score; a model with two scores in a column counts as two, named by their
    directories.

    A model with several names, such as copies in other directories, is listed under the first.
    """
    column_of = {score.directory: column for column in columns for score in column.scores}
    times = Counter((score.fingerprint, column_of[score.directory]) for score in scores)
    names: dict[str, str] = {}
    for score in scores:
        names.setdefault(score.fingerprint, score.model)
    namesakes = Counter(names.values())
    found: dict[str, dict[Column, Score]] = {}
    for score in scores:
        name, column = names[score.fingerprint], column_of[score.directory]
        if namesakes[name] > 1:
            name += f" {score.fingerprint[:8]}"
        if times[score.fingerprint, column] > 1:
            name += f" ({score.directory})"
        found.setdefault(name, {})[column] = score
    return found


def table(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """One row for each finished trial, for a file: `score` is the metric to choose by; all metrics follow."""
    return [
        {
            "run": str(score.directory),
            "model": score.model,
            "model_fingerprint": score.fingerprint[:12],
            "task": score.task,
            "data": score.data,
            "dev_fingerprint": score.dev_fingerprint[:12],
            **{name: trial[name] for name in ("learning_rate", "batch_size", "epochs", "seed")},
            "metric": score.metric.name,
            "score": trial["metrics"].get(score.metric.name),
            **trial["metrics"],
        }
        for score in scores
        for trial in score.trials
    ]
