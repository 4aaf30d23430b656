"""The flags of `bert-jax pretrain`."""

import dataclasses
import sys
from collections.abc import Sequence

import tyro

from bert_jax.cli.experiment_argument import take_experiment
from bert_jax.cli.parsing import given_flags, list_names, parse_flags
from bert_jax.model_config import MODEL_SIZES
from bert_jax.objectives import objective_name
from bert_jax.pretraining.arguments import Pretrain
from data_pipeline.errors import UserError
from experiments import SUMMARIES

_HELP = """\
usage: bert-jax pretrain EXPERIMENT --workdir DIR [FLAGS]

Train a named experiment. Run the same command again to resume where it stopped.

  bert-jax pretrain quickstart --workdir runs/quickstart
  bert-jax pretrain base --workdir runs/base --data.corpus corpora/wiki

Any setting of the experiment can be changed by a flag, for example
--model.num-layers 6. `bert-jax pretrain EXPERIMENT --help` lists the flags
with the values that the experiment gives them. MODULE:NAME is an experiment of
your own, from the working directory or an installed package.

Ctrl-C and SIGTERM save a checkpoint and end with status 75: run the same
command again to resume. A second Ctrl-C ends at once.

On a TPU slice, or a cluster, run the same command with --distributed on every
host.

experiments (`bert-jax experiments` shows their sizes):
"""


def parse(argv: Sequence[str]) -> Pretrain:
    """Reads the command line; the experiment's name comes first and gives the defaults.

    Raises:
      UserError: unknown experiment, unknown flag, impossible value, no corpus.
      SystemExit: with status 0 for --check-flags and --help.
    """
    page = _HELP + list_names(SUMMARIES)
    usage = "bert-jax pretrain EXPERIMENT --workdir DIR; `bert-jax experiments` lists them"
    name, experiment = take_experiment(argv, usage=usage, page=page)
    default = Pretrain(
        name=name,
        workdir=tyro.MISSING_NONPROP,
        objective=objective_name(experiment.objective),
        experiment=experiment,
    )
    given = given_flags(argv)
    try:
        args = parse_flags(Pretrain, argv[1:], command=f"bert-jax pretrain {name}", default=default)
    except UserError as error:
        sizes = [f"--model.{size.replace('_', '-')}" for size in MODEL_SIZES if f"model.{size}" in given]
        if not sizes or "init_from" not in given:
            raise
        raise UserError(
            f"{error}; with --init-from leave {', '.join(sizes)} out, and the run takes the model's sizes"
        ) from None
    if args.check_flags is not None:
        args.experiment.check_devices(args.check_flags)
        sys.exit(0)
    if not args.experiment.data.corpus:
        raise UserError(
            "no corpus: pass --data.corpus DIR; `bert-jax prepare` makes one from text, and "
            "`bert-jax pretrain quickstart` needs none"
        )
    return dataclasses.replace(args, given=given)
