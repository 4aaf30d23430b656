"""`bert-jax finetune TASK --model DIR --data DIR --output DIR`: trains a head on a pretrained model."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from bert_jax.cli.flags import parse_flags, take_name
from bert_jax.downstream.arguments import Finetune
from bert_jax.inference.model_source import ModelSource
from data_pipeline.errors import UserError

if TYPE_CHECKING:
    from bert_jax.downstream.grid import Grid
    from bert_jax.downstream.task_data import TaskData

_HELP = """\
usage: bert-jax finetune TASK --model DIR --data DIR --output DIR [FLAGS]

Fine-tune a pretrained model. Run the same command again to resume where it
stopped. `bert-jax finetune TASK --help` lists a task's flags.

  bert-jax finetune cola --model exported/mine --data glue/ --output runs/cola
  bert-jax finetune classify --model runs/mine --data my_tables/ \\
      --output runs/mine-topics --text-column title --label-column topic

Several values of --learning-rate, --batch-size or --epochs make a grid;
--grid takes the paper's for those not given. --seeds N repeats every cell.

tasks:
"""


def parse(argv: Sequence[str]) -> Finetune[Any]:
    """Reads the command line; the task's name comes first and decides the flags.

    Raises:
      UserError: unknown task, unknown flag, impossible value.
    """
    from bert_jax.downstream import TASKS

    page = _HELP + "\n".join(f"  {name:<10} {task.summary}" for name, task in TASKS.items())
    usage = "bert-jax finetune TASK --model DIR --data DIR --output DIR"
    name = take_name(argv, TASKS, what="task", usage=usage, page=page)
    missing: Any = tyro.MISSING_NONPROP
    settings: Any = TASKS[name].settings
    default = Finetune(name, ModelSource(model=missing), data=missing, output=missing, settings=settings)
    # The settings' own class tells tyro which flags there are.
    kind: Any = Finetune.__class_getitem__(type(settings))  # type: ignore[attr-defined]
    summary = TASKS[name].summary
    about = f"{summary[0].upper()}{summary[1:]}. --data: {inspect.getdoc(settings)}"
    description = f"{about}\n\n{inspect.getdoc(Finetune)}"
    return parse_flags(
        kind, argv[1:], command=f"bert-jax finetune {name}", default=default, description=description
    )


def run(args: Finetune[Any]) -> int:
    """Trains every unfinished cell. Returns 0, or 75 if interrupted and saved, or 1 if the loss was NaN.

    Raises:
      UserError: --output holds something else; the model or the data cannot be used.
    """
    from bert_jax.downstream.grid import Grid
    from bert_jax.parallel.compilation_cache import keep_compiled
    from bert_jax.workdir import folder as workdir
    from bert_jax.workdir import record

    _check_data(args)
    if (args.output / record.CONFIG_FILE).exists():
        raise UserError(f"{args.output} holds a model or a run; name another --output")
    model = args.source.open()
    longest = model.config.max_position_embeddings
    if args.settings.max_seq_length > longest:
        raise UserError(
            f"--max-seq-length is {args.settings.max_seq_length}; the model has {longest} positions, "
            f"so give {longest} or less"
        )
    # The output folder is made only after all input has been checked.
    data = args.settings.load(args.task, args.data, model.tokenizer)
    grid = Grid(args, model, data)
    _say_sizes(args, data)
    if note := grid.describe_start():
        print(note, flush=True)
    with workdir.lock(args.output):
        keep_compiled(args.output)
        return _train_grid(grid)


def _check_data(args: Finetune[Any]) -> None:
    """Raises UserError if --data cannot be a data set."""
    from bert_jax.downstream import TASKS
    from data_pipeline.tfds import is_tfds

    if is_tfds(args.data):
        if TASKS[args.task].files_only:
            raise UserError(f"{args.task} reads no TensorFlow datasets; --data takes a folder")
    elif not Path(args.data).is_dir():
        raise UserError(f"{args.data} is not a folder; --data takes that of a data set")
    elif args.output.exists() and args.output.samefile(args.data):
        raise UserError(f"--output {args.output} is the folder of --data; name another one")


def _say_sizes(args: Finetune[Any], data: "TaskData") -> None:
    """Prints how many sequences each split has, and how many of them were truncated."""
    from bert_jax.downstream import TASKS

    parts = {"train": data.train, **data.evaluated}
    sizes = ", ".join(f"{name} {len(rows.tokens['input_ids']):,}" for name, rows in parts.items())
    print(f"sequences: {sizes}", flush=True)
    largest = max(cell.batch_size for cell in args.training.cells())
    if largest > len(data.train):
        print(
            f"note: a batch of {largest} has some of the {len(data.train)} training examples twice or more",
            flush=True,
        )
    cut = ", ".join(f"{rows.num_cut:,} of {name}" for name, rows in parts.items() if rows.num_cut)
    if cut:
        setting = TASKS[args.task].cut_by
        flag = f"--{setting.replace('_', '-')} {getattr(args.settings, setting)}"
        print(f"warning: cut to {flag}: {cut}", flush=True)


def _train_grid(grid: "Grid") -> int:
    from bert_jax import exit_status
    from bert_jax.downstream.results import report
    from bert_jax.parallel.interrupt import listen
    from bert_jax.training.failures import out_of_memory_as_user_error, storage_errors_as_unfinished
    from bert_jax.training.nonfinite import NonFiniteError

    with listen() as interrupt:
        try:
            with out_of_memory_as_user_error("--batch-size"), storage_errors_as_unfinished():
                finished = grid.train(interrupt)
        except NonFiniteError as error:
            print(
                f"bert-jax: error: {error}; try a lower --learning-rate in another --output", file=sys.stderr
            )
            return exit_status.FAILED
        if not finished:
            print(f"{interrupt.signal_name}: saved; run the same command again to resume")
            return exit_status.SAVED
    report(grid.args.output, grid.args.task, grid.data.metric)
    return 0
