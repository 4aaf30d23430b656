"""Reads a run's work directory as a pretrained model: a checkpoint's params and the run's tokenizer."""

import dataclasses
from pathlib import Path

from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.pretrained import PretrainedModel, with_shared_pooler
from bert_jax.objectives import Objective
from bert_jax.task import Metric
from bert_jax.training.checkpoints import load_params
from bert_jax.training.metric_log import heldout_rows
from bert_jax.workdir.directory import find_vocabulary
from bert_jax.workdir.pretraining_identity import pretraining_of
from bert_jax.workdir.record import CONFIG_FILE, RunRecord, read_record
from data_pipeline.errors import UserError
from data_pipeline.json_text import read_object


def recognises(directory: Path) -> bool:
    """Whether a directory is the work directory of a run."""
    file = directory / CONFIG_FILE
    return file.is_file() and "experiment" in read_object(file)


def read(workdir: Path, step: int | None) -> PretrainedModel:
    """Reads a checkpoint, the newest if `step` is None, without the heads that were not trained.

    Raises:
      UserError: there is no such checkpoint, it is damaged, or the tokenizer is missing or not the run's.
    """
    record = read_record(workdir)
    vocabulary = find_vocabulary(workdir, record)
    # The directory tells repeats of one experiment apart.
    name = workdir.resolve().name + ("" if step is None else f"-step-{step}")
    step, params = load_params(workdir, step)
    objective = record.experiment.objective
    config = dataclasses.replace(record.experiment.model, dtype="float32")
    trained = {part: arrays for part, arrays in params.items() if part in objective.trained_parts}
    model = PretrainedModel(
        name=name,
        config=config,
        params=with_shared_pooler(config, trained),
        tokenizer=make_tokenizer(vocabulary),
        vocabulary=vocabulary,
        objective=objective,
        facts=_facts(workdir, record, step),
        pretraining=pretraining_of(record, step),
    )
    if model.tokens_without_embedding:
        raise UserError(
            f"the tokenizer of {workdir} has more tokens than the model's {config.vocab_size} word "
            f"embeddings: it is not the one that the run was trained with"
        )
    return model


def _facts(workdir: Path, record: RunRecord, step: int) -> dict[str, str]:
    experiment = record.experiment
    sizes = experiment.batch_sizes
    return {
        "experiment": record.experiment_name,
        "steps": f"{step:,} of {experiment.num_train_steps:,}",
        "sequences a step": " to ".join(f"{size:,}" for size in sorted({sizes[0], sizes[-1]})),
        "seed": str(experiment.seed),
        **({"started from": record.init_from} if record.init_from else {}),
        **_heldout_metrics(workdir, experiment.objective, step),
    }


def _heldout_metrics(workdir: Path, objective: Objective, step: int) -> dict[str, str]:
    at_step = [row for row in heldout_rows(workdir) if row["step"] == step]
    if not at_step:
        return {}
    shown = (Metric("loss", "loss"), *objective.metrics)
    row = at_step[-1]
    return {f"held-out {m.label}": m.show(row[m.name]) for m in shown if m.name in row}
