"""What `bert-jax finetune` does, once flags are read and the model is open: checks, trains and reports."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax import exit_status
from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.model_config import ModelConfig
from bert_jax.parallel.chips import Environment
from bert_jax.parallel.interrupt import Interrupted, listen
from bert_jax.tasks.finetuning.dealing import helpers, parent_of_helper
from bert_jax.tasks.finetuning.flags import Finetune
from bert_jax.tasks.finetuning.grid import Grid
from bert_jax.tasks.finetuning.results import report
from bert_jax.tasks.finetuning.task import TaskData
from bert_jax.training.failures import out_of_memory_as_user_error, storage_errors_as_unfinished
from bert_jax.training.nonfinite import NonFiniteError
from bert_jax.workdir import directory as workdir
from bert_jax.workdir import record
from data_pipeline.directories import check_writable
from data_pipeline.errors import UserError
from data_pipeline.tfds import is_tfds


def finetune(args: Finetune[Any], model: PretrainedModel, other_chips: Sequence[Environment] = ()) -> int:
    """Trains every unfinished trial. Returns 0, or 75 if interrupted and saved, or 1 if every trial diverged.

    Args:
      args: the flags, of which `check_directories` was asked.
      model: the one that `args.source` names.
      other_chips: on which processes that this one starts train some of the trials, as `take_chip` returns.

    Raises:
      UserError: the model or the data cannot be used; --output holds trials of other settings.
    """
    check_model(args, model.config)
    # The output directory is made only after all input has been checked.
    data = args.settings.load(args.task, args.data, model.tokenizer)
    grid = Grid(args, model, data)
    _say_sizes(args, data)
    if note := grid.describe_start():
        print(note, flush=True)
    workdir.keep_compiled(args.output)
    return _train_grid(grid, other_chips)


def check_directories(args: Finetune[Any]) -> None:
    """Raises UserError if --data cannot be a data set, or --output holds something else."""
    check_writable(args.output, "--output")
    if args.output.exists() and not args.output.is_dir():
        raise UserError(f"--output {args.output} is a file; name a directory")
    if is_tfds(args.data):
        if args.settings.files_only:
            raise UserError(f"{args.task} reads no TensorFlow datasets; --data takes a directory")
    elif not Path(args.data).is_dir():
        raise UserError(f"{args.data} is not a directory; --data takes that of a data set")
    elif args.output.exists() and args.output.samefile(args.data):
        raise UserError(f"--output {args.output} is the directory of --data; name another one")
    if (args.output / record.CONFIG_FILE).exists():
        raise UserError(f"{args.output} holds a model or a run; name another --output")


def check_model(args: Finetune[Any], config: ModelConfig) -> None:
    """Raises UserError if a model is too short for the sequences, or lacks layers that flags name."""
    longest = config.max_position_embeddings
    if args.settings.max_seq_length > longest:
        raise UserError(
            f"--max-seq-length is {args.settings.max_seq_length}; the model has {longest} positions, "
            f"so give {longest} or less"
        )
    FineTuningConfig(model=config, rates=args.training.rates, features=args.training.features)


def _say_sizes(args: Finetune[Any], data: TaskData) -> None:
    """Prints how many sequences each split has, and how many of them were truncated."""
    splits = {"train": data.train, **data.evaluated}
    sizes = ", ".join(f"{name} {len(rows.tokens['input_ids']):,}" for name, rows in splits.items())
    print(f"sequences: {sizes}", flush=True)
    largest = max(trial.batch_size for trial in args.training.trials())
    if largest > len(data.train):
        print(
            f"note: a batch of {largest} has some of the {len(data.train)} training rows twice or more",
            flush=True,
        )
    cut = ", ".join(f"{rows.num_cut:,} of {name}" for name, rows in splits.items() if rows.num_cut)
    if cut:
        setting = args.settings.cut_by
        flag = f"--{setting.replace('_', '-')} {getattr(args.settings, setting)}"
        print(f"warning: cut to {flag}: {cut}", flush=True)


def _train_grid(grid: Grid, other_chips: Sequence[Environment]) -> int:
    with listen() as interrupt:
        try:
            with (
                out_of_memory_as_user_error("--batch-size"),
                storage_errors_as_unfinished(grid.args.output),
            ):
                grid.begin()
                # One trial is left to this process.
                chips = other_chips[: max(len(grid.turns.unfinished()) - 1, 0)]
                with helpers(grid.args, chips):
                    grid.train(interrupt)
        except NonFiniteError as error:
            print(f"bert-jax: error: {error}; try a lower --learning-rate", file=sys.stderr)
            return exit_status.FAILED
        except Interrupted:
            print(f"{interrupt.signal_name}: saved; run the same command again to resume")
            return exit_status.SAVED
    if parent_of_helper():
        return 0
    report(grid.args.output, grid.args.task, grid.metric)
    return 0
