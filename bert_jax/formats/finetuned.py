"""Reads a fine-tuned model: as it is, or as a pretrained model of its encoder and the head of its task."""

import dataclasses
from pathlib import Path

from bert_jax.finetuning.grid_folder import RESULT_FILE, find_cell, not_finished, warn_if_unfinished
from bert_jax.finetuning.record import FineTuningRecord, read_record
from bert_jax.formats.configuration import read_json
from bert_jax.formats.huggingface_tokenizer import read_tokenizer
from bert_jax.formats.pretrained import HEADS, PretrainedModel, TaskHead
from bert_jax.training.checkpoints import load_params, saved_steps
from bert_jax.training.train_step import Params
from bert_jax.workdir.record import CONFIG_FILE
from data_pipeline.errors import UserError


def recognises(directory: Path) -> bool:
    """Whether a folder is the output of `bert-jax finetune`, or one of its cells."""
    file = find_cell(directory) / CONFIG_FILE
    return file.is_file() and {"task", "labels"} <= set(read_json(file))


def read(directory: Path) -> PretrainedModel:
    """Reads the best cell of an output folder, or the cell that `directory` is.

    Warns on standard error if other cells of the grid are not finished.

    Raises:
      UserError: the checkpoint is damaged or was deleted.
    """
    folder = find_cell(directory)
    record, params = load_cell(folder)
    warn_if_unfinished(directory)
    config = record.config
    tokenizer, vocabulary = read_tokenizer(folder)
    head = params.get("classifier", {})
    has_head = head or not config.features.are_plain(config.model.num_layers)
    return PretrainedModel(
        name=f"{record.trained_from}-{record.task}",
        config=dataclasses.replace(config.model, dtype="float32"),
        params={part: params[part] for part in ("encoder", *HEADS) if part in params},
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        facts={"task": record.task, "fine-tuned from": record.trained_from},
        head=TaskHead(config.kind, record.labels, head, config.features) if has_head else None,
    )


def load_cell(folder: Path) -> tuple[FineTuningRecord, Params]:
    """A cell's record, and its parameters as numpy arrays.

    Raises:
      UserError: the folder is no fine-tuned model's; training is not finished or diverged; the checkpoint is
        damaged or was deleted.
    """
    record = read_record(folder)
    if not (folder / RESULT_FILE).exists():
        raise not_finished(folder)
    if why := read_json(folder / RESULT_FILE).get("diverged"):
        # Its checkpoint is from the middle of training.
        raise UserError(f"{folder} diverged: {why}; train with a lower --learning-rate")
    if not saved_steps(folder):
        raise UserError(f"{folder} has no checkpoint; of the finished cells only the best one keeps its own")
    return record, load_params(folder)[1]
