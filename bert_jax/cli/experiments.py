"""`bert-jax experiments [NAME]`: lists the named experiments, or shows one in full."""

from rich.console import Console
from rich.table import Table

from bert_jax.cli.experiment_argument import find_experiment
from bert_jax.cli.flags.experiments import Experiments
from bert_jax.objectives import objective_name
from bert_jax.objectives.experiment import Experiment
from bert_jax.study import published_of
from bert_jax.training.accounting import run_flops, run_tokens
from bert_jax.workdir.config_text import flatten
from experiments import EXPERIMENTS, STUDIES


def run(args: Experiments) -> None:
    """Prints a table of all experiments, or all values of one.

    Raises:
      UserError: no experiment has that name.
    """
    if not args.name:
        _print_table()
        return
    _, experiment = find_experiment(args.name)
    print(describe(experiment), end="")
    for study, measure, value in published_of(experiment, STUDIES.values()):
        print(f"published {study.name} {measure.column} = {value:g}")


def describe(experiment: Experiment) -> str:
    """All values of an experiment, one `path = value` per line, and its number of parameters."""
    lines = [f"{path} = {value!r}" for path, value in flatten(experiment).items()]
    return "\n".join([*lines, f"parameters = {experiment.objective.num_parameters(experiment.model)}"]) + "\n"


def _print_table() -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("experiment", "objective", "L/H/A"):
        table.add_column(heading, no_wrap=True)
    for heading in ("params", "steps", "batch", "tokens", "FLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, experiment in EXPERIMENTS.items():
        model = experiment.model
        table.add_row(
            name,
            objective_name(experiment.objective),
            f"{model.num_layers}/{model.hidden_size}/{model.num_heads}",
            f"{experiment.objective.num_parameters(model) / 1e6:.1f} M",
            f"{experiment.num_train_steps:,}",
            f"{experiment.global_batch_size:,}",
            _in_powers_of_ten(run_tokens(experiment)),
            _in_powers_of_ten(run_flops(experiment)),
        )
    Console().print(table)


def _in_powers_of_ten(number: int) -> str:
    return f"{number:.1e}".replace("e+", "e")  # two columns narrower: the table fills the terminal
