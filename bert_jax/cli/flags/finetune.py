"""The flags of `bert-jax finetune`."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import tyro

from bert_jax.cli.parsing import parse_flags, take_name
from bert_jax.formats.model_source import ModelSource
from bert_jax.tasks import TASKS, find_task
from bert_jax.tasks.finetuning.flags import Finetune
from bert_jax.user_code import working_directory_on_path

_HELP = """\
usage: bert-jax finetune TASK --model DIR --data DIR --output DIR [FLAGS]

Fine-tune a pretrained model. Run the same command again to resume where it
stopped. `bert-jax finetune TASK --help` lists a task's flags.

  bert-jax finetune cola --model exported/mine --data glue/ --output runs/cola
  bert-jax finetune classify --model runs/mine --data my_tables/ \\
      --output runs/mine-topics --text-column title --label-column topic

Several values of --learning-rate, --batch-size or --epochs make a grid;
--grid takes the paper's for those not given. --seeds N repeats every trial.
Several trials are dealt out, one to each GPU or TPU chip, and to as many
machines as run the same command on storage that they share.

tasks:
"""
_OWN = "\n  MOD:NAME   your own, a module's Task; see docs/architecture.md"


def parse(argv: Sequence[str]) -> Finetune[Any]:
    """Reads the command line; the task's name comes first and decides the flags.

    Raises:
      UserError: unknown task, unknown flag, impossible value.
    """
    page = _HELP + "\n".join(f"  {name:<10} {task.summary}" for name, task in TASKS.items()) + _OWN
    usage = "bert-jax finetune TASK --model DIR --data DIR --output DIR"
    name = take_name(argv, what="task", usage=usage, page=page)
    with working_directory_on_path():
        task = find_task(name)
        flags: Any = task.flags()
    missing: Any = tyro.MISSING_NONPROP
    default = Finetune(name, ModelSource(model=missing), data=missing, output=missing, settings=flags)
    # The task's own class of flags tells tyro which there are.
    kind: Any = Finetune.__class_getitem__(type(flags))  # type: ignore[attr-defined]
    about = f"{task.summary[0].upper()}{task.summary[1:]}. --data: {inspect.getdoc(flags)}"
    description = f"{about}\n\n{inspect.getdoc(Finetune)}"
    args = parse_flags(
        kind, argv[1:], command=f"bert-jax finetune {name}", default=default, description=description
    )
    return dataclasses.replace(args, argv=tuple(argv))
