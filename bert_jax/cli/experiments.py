"""`bert-jax experiments [NAME]`: lists the named experiments, or shows one in full."""

import dataclasses
from typing import Annotated

import tyro

from bert_jax.cli.flags import check_name
from bert_jax.config import Experiment
from bert_jax.config_text import flatten
from bert_jax.training.accounting import run_flops, run_tokens, total_parameters
from experiments import EXPERIMENTS


@dataclasses.dataclass(frozen=True)
class Experiments:
    """List the named experiments with their sizes, or show all settings of one.

    Parameters include the pretraining heads. Tokens (with padding) and FLOPs (forward and
    backward) are for the whole run.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = ""
    """Experiment to show in full; without it, all are listed."""


def run(args: Experiments) -> None:
    """Prints a table of all experiments, or all values of one.

    Raises:
      UserError: no experiment has that name.
    """
    if not args.name:
        _print_table()
        return
    check_name(args.name, EXPERIMENTS, "experiment")
    print(describe(EXPERIMENTS[args.name]), end="")


def describe(experiment: Experiment) -> str:
    """All values of an experiment, one `path = value` per line, and its number of parameters."""
    lines = [f"{path} = {value!r}" for path, value in flatten(experiment).items()]
    return "\n".join([*lines, f"parameters = {total_parameters(experiment.model)}"]) + "\n"


def _print_table() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("experiment", "objective", "L/H/A"):
        table.add_column(heading, no_wrap=True)
    for heading in ("parameters", "steps", "batch", "tokens", "FLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, experiment in EXPERIMENTS.items():
        model = experiment.model
        table.add_row(
            name,
            model.objective,
            f"{model.num_layers}/{model.hidden_size}/{model.num_heads}",
            f"{total_parameters(model) / 1e6:.1f} M",
            f"{experiment.num_train_steps:,}",
            f"{experiment.global_batch_size:,}",
            f"{run_tokens(experiment):.1e}",
            f"{run_flops(experiment):.1e}",
        )
    Console().print(table)
