"""`bert-jax finetune TASK --model DIR --data DIR --output DIR`: trains a head on a pretrained model."""

import dataclasses
from typing import Any

from bert_jax.cli.model_source import open_source
from bert_jax.tasks import find_task
from bert_jax.tasks.finetuning.dealing import take_chip
from bert_jax.tasks.finetuning.flags import Finetune
from bert_jax.tasks.finetuning.run import check_directories, finetune
from bert_jax.user_code import working_directory_on_path


def run(args: Finetune[Any]) -> int:
    """Trains every unfinished trial. Returns, and raises, as `finetune` and `check_directories` do."""
    with working_directory_on_path():
        settings = find_task(args.task).settings(args.settings)
    args = dataclasses.replace(args, settings=settings)
    check_directories(args)
    other_chips = take_chip(args)
    return finetune(args, open_source(args.source), other_chips)
