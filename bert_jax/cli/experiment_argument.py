"""The experiment that a command line names, with the objective of `--objective`; both may be of one's own.

They are read before the other flags, since they decide which settings there are, and their defaults.
"""

from collections.abc import Sequence

from bert_jax.cli.parsing import peek, take_name
from bert_jax.objectives import find_objective
from bert_jax.objectives.base import Objective
from bert_jax.objectives.experiment import Experiment
from bert_jax.user_code import find_named, working_directory_on_path
from data_pipeline.errors import UserError
from experiments import ALIASES, EXPERIMENTS

_NAMED = {**EXPERIMENTS, **{alias: EXPERIMENTS[name] for alias, name in ALIASES.items()}}


def find_experiment(name: str) -> tuple[str, Experiment]:
    """The experiment of a name or an alias, or the one that `module:NAME` names, whose module is imported.

    Returns its name, which is no alias, and its values.

    Raises:
      UserError: there is none.
    """
    with working_directory_on_path():
        found = find_named("experiment", name, _NAMED, lambda value: isinstance(value, Experiment))
    return ALIASES.get(name, name), found


def take_experiment(argv: Sequence[str], *, usage: str, page: str) -> tuple[str, Experiment]:
    """The experiment's name and values; the arguments are those of `take_name`.

    Raises:
      UserError: no name, an unknown one, or an unknown objective.
      SystemExit: with status 0, after printing the page for --help.
    """
    name, experiment = find_experiment(take_name(argv, what="experiment", usage=usage, page=page))
    objective = peek(argv[1:], "--objective").objective
    if objective is None:
        return name, experiment
    # Only for a class that the user names: a model's directory must not choose code of this directory to run.
    with working_directory_on_path():
        kind = find_objective(objective)
        if kind is type(experiment.objective):
            return name, experiment  # with the settings that it has there
        made = _make_objective(objective, kind)
    try:
        return name, experiment.with_objective(made)
    except UserError as error:
        raise UserError(f"--objective {objective} does not fit experiment {name} itself: {error}") from None


def _make_objective(name: str, kind: type[Objective]) -> Objective:
    try:
        return kind()
    except TypeError as error:
        raise UserError(
            f"--objective {name!r} must have all methods of an objective, and a default for each setting: "
            f"{error}"
        ) from None
