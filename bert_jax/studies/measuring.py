"""What a measure of a pretrained model does, and which numbers come of it."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import exit_status
from bert_jax.finetuning_config import LayerRates
from bert_jax.formats.model_source import ModelSource
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.inference.sentence_scores import sentence_scores
from bert_jax.names import SentenceScoring
from bert_jax.studies.changes import with_changes
from bert_jax.studies.heldout_language_model import heldout_language_model
from bert_jax.studies.plan import MeasuringJob
from bert_jax.study import Changes, Finetuned, HeldoutLM, MinimalPairs
from bert_jax.task import Metric
from bert_jax.tasks import find_task
from bert_jax.tasks.finetuning.flags import Finetune, TrainingFlags
from bert_jax.tasks.finetuning.results import read_results, trial_of
from bert_jax.tasks.finetuning.run import check_directories, finetune
from bert_jax.workdir.grid import ITEMS_FILE, RESULTS_FILE, TRIALS_DIRECTORY, write_items
from data_pipeline.errors import UserError
from data_pipeline.json_text import load_json
from data_pipeline.tasks.minimal_pairs import MinimalPair, accuracies, fingerprint, read_minimal_pairs
from data_pipeline.tfds import is_tfds

_RATES = {field.name for field in dataclasses.fields(LayerRates)}


class Interrupted(Exception):
    """A measure was interrupted, and what it did so far is saved."""


def finetune_arguments(
    task: str, flags: Changes, model: ModelSource, data: str, output: Path
) -> Finetune[Any]:
    """The arguments of `bert-jax finetune` with some of its flags.

    Args:
      task: as `bert-jax finetune` calls it.
      flags: name of a flag, with "_" for "-" -> value.
      data: what --data names.
      output: directory of the trials.

    Raises:
      UserError: an unknown task or flag, or an impossible value.
    """
    settings: Any = find_task(task).settings()
    names = {field.name for field in dataclasses.fields(settings)}
    of_task = {name: value for name, value in flags.items() if name in names}
    of_training = {
        f"rates.{name}" if name in _RATES else name: value
        for name, value in flags.items()
        if name not in names
    }
    where = f"fine-tuning on {task}"
    for name in ("learning_rate", "batch_size", "epochs"):
        if not isinstance(flags.get(name, ()), tuple | list):
            raise UserError(f"{where}: {name} is {flags[name]!r}; it must be a tuple of values")
    return Finetune(
        task,
        model,
        data,
        output,
        with_changes(settings, of_task, where),
        with_changes(TrainingFlags(), of_training, where),
    )


def arguments_of(job: MeasuringJob, directory: Path, tasks: str) -> Finetune[Any]:
    """The arguments of `bert-jax finetune` for a job whose measure is `Finetuned`; errors as
    `finetune_arguments`."""
    assert isinstance(job.measure, Finetuned)
    return finetune_arguments(
        job.measure.task,
        job.flags,
        ModelSource(directory / job.model.path, step=job.step),
        path_of_data(tasks, job.measure.data),
        directory / job.path,
    )


def measure(job: MeasuringJob, directory: Path, tasks: str) -> tuple[dict[str, Any], ...]:
    """Does a measure; what it did before an interruption is not done again.

    Args:
      directory: of the study.
      tasks: directory of the tasks' files.

    Returns:
      For each measured model the fields of `Measurement` that do not depend on the arm; paths are relative to
      the job's directory.

    Raises:
      Interrupted: somebody asked it to stop.
      UserError: the data or the model cannot be used.
    """
    run, output = directory / job.model.path, directory / job.path
    match job.measure:
        case Finetuned():
            return _finetune(arguments_of(job, directory, tasks))
        case HeldoutLM():
            model = open_model(run, job.step)
            scores = heldout_language_model(model, job.model.experiment.data.corpus, **job.flags)
            return (_found(scores.metrics, scores.items, output),)
        case MinimalPairs(data=data, score=score):
            pairs = read_minimal_pairs(Path(path_of_data(tasks, data)))
            accuracy, correct = _minimal_pairs(open_model(run, job.step), pairs, score)
            found = _found({"accuracy": 100 * accuracy}, {"accuracy": 100 * correct}, output)
            return ({**found, "data_fingerprint": fingerprint(pairs)},)
    raise TypeError(f"{job.measure} is no kind of measure")


def path_of_data(tasks: str, data: str) -> str:
    """What --data names: a directory inside that of all tasks, or a TensorFlow dataset."""
    return data if is_tfds(data) else str(Path(tasks) / data)


def _minimal_pairs(
    model: PretrainedModel, pairs: Sequence[MinimalPair], scoring: SentenceScoring
) -> tuple[float, np.ndarray]:
    """The mean accuracy of the paradigms, and which pairs are right, 0 or 1 [pairs].

    Paradigms count equally. If their sizes differ, a right pair of a small one counts more than 1, so that
    the mean over pairs is the accuracy whatever the sizes.
    """
    if model.config.attention != "bidirectional":
        scoring = "likelihood"
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    scores = sentence_scores(model, sentences, scoring).reshape(-1, 2)
    sizes = collections.Counter(pair.paradigm for pair in pairs)
    weights = np.array([len(pairs) / (len(sizes) * sizes[pair.paradigm]) for pair in pairs])
    summary = accuracies(pairs, [(good, bad) for good, bad in scores.tolist()])
    return summary["accuracy"], weights * (scores[:, 0] > scores[:, 1])


def _found(metrics: Mapping[str, float], items: Mapping[str, np.ndarray], output: Path) -> dict[str, Any]:
    """Writes the outcomes on the items; returns the fields of a measurement without trials."""
    output.mkdir(parents=True, exist_ok=True)
    write_items(output, items)
    return {"metrics": dict(metrics), "items": ITEMS_FILE}


def _finetune(args: Finetune[Any]) -> tuple[dict[str, Any], ...]:
    check_directories(args)
    status = finetune(args, open_model(args.source.model, args.source.step))
    if status == exit_status.SAVED:
        raise Interrupted
    written = load_json(args.output / RESULTS_FILE)
    metrics = [Metric(**one["metric"]) for one in (written, *written["by_metric"])]
    found = []
    asked = set(args.training.trials())
    for result in read_results(args.output):
        trial = trial_of(result)
        if trial not in asked:  # of an earlier start with other flags
            continue
        scales = {name: _scale(name, metrics) for name in result["metrics"]}
        items = Path(TRIALS_DIRECTORY) / trial.name / ITEMS_FILE
        found.append(
            {
                "metrics": {name: scales[name] * value for name, value in result["metrics"].items()},
                "hyperparameters": trial.name.rpartition("-seed")[0],
                "finetuning_seed": trial.seed,
                "layer": trial.layer,
                "degenerate": result["degenerate"],
                "diverged": result["diverged"],
                "items": str(items) if (args.output / items).exists() else None,
                "items_scale": scales,
            }
        )
    return tuple(found)


def _scale(name: str, metrics: Sequence[Metric]) -> float:
    """What puts the value of a metric, on any split, into the unit of papers.

    One that is none of `metrics` has the scale of the first.
    """
    same = [metric for metric in metrics if f"_{name}".endswith(f"_{metric.name}")]
    metric = max(same, key=lambda metric: len(metric.name), default=metrics[0])
    return 1.0 if metric.in_percent or metric.better == "lower" else 100.0
