"""Reads a fine-tuned model: as it is, or as a pretrained model of its encoder and the head of its task."""

import dataclasses
from pathlib import Path

from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from bert_jax.formats.pretrained import HEADS, PretrainedModel, TaskHead
from bert_jax.training.checkpoints import load_params, saved_steps
from bert_jax.training.train_step import Params
from bert_jax.workdir.finetuning import FineTuningRecord, read_record
from bert_jax.workdir.grid import RESULT_FILE, find_trial, not_finished, warn_if_unfinished
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.errors import UserError
from data_pipeline.json_text import read_object


def recognises(directory: Path) -> bool:
    """Whether a directory is the output of `bert-jax finetune`, or one of its trials."""
    file = find_trial(directory) / CONFIG_FILE
    return file.is_file() and {"task", "labels"} <= set(read_object(file))


def read(directory: Path) -> PretrainedModel:
    """Reads the best trial of an output directory, or the trial that `directory` is.

    Warns on standard error if other trials of the grid are not finished.

    Raises:
      UserError: the checkpoint is damaged or was deleted.
    """
    trial = find_trial(directory)
    record, params = load_trial(trial)
    warn_if_unfinished(directory)
    config = record.config
    tokenizer, vocabulary = read_tokenizer(trial)
    head = {name: layer for name, layer in params.items() if name not in ("encoder", *HEADS)}
    has_head = head or not config.features.are_plain(config.model.num_layers)
    return PretrainedModel(
        name=f"{record.trained_from}-{record.task}",
        config=dataclasses.replace(config.model, dtype="float32"),
        params={part: params[part] for part in ("encoder", *HEADS) if part in params},
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        family=record.family,
        facts={"task": record.task, "fine-tuned from": record.trained_from}
        | {name.replace("_", " "): str(value) for name, value in record.learnt.items()},
        head=TaskHead(record.kind, record.labels, head, config.features, record.exports_as)
        if has_head
        else None,
    )


def load_trial(directory: Path) -> tuple[FineTuningRecord, Params]:
    """A trial's record, and its parameters as numpy arrays.

    Raises:
      UserError: the directory is no fine-tuned model's; training is not finished or diverged; the checkpoint
        is damaged or was deleted.
    """
    record = read_record(directory)
    if not (directory / RESULT_FILE).exists():
        raise not_finished(directory)
    if why := read_object(directory / RESULT_FILE).get("diverged"):
        # Its checkpoint is from the middle of training.
        raise UserError(f"{directory} diverged: {why}; train with a lower --learning-rate")
    if not saved_steps(directory):
        raise UserError(
            f"{directory} has no checkpoint; of the finished trials only the best one keeps its own"
        )
    return record, load_params(directory)[1]
