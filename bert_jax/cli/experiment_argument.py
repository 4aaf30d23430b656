"""The experiment that a command line names, with the objective of `--objective`.

Both are read before the other flags, since they decide which settings there are, and their defaults.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence

from bert_jax.cli.parsing import check_name, peek, take_name
from bert_jax.objectives import find_objective
from bert_jax.objectives.base import Objective
from bert_jax.objectives.experiment import Experiment
from data_pipeline.errors import UserError
from experiments import ALIASES, EXPERIMENTS

_NAMES = (*EXPERIMENTS, *ALIASES)


def find_name(name: str) -> str:
    """The name of the experiment that a name or an alias means. Raises UserError if there is none."""
    check_name(name, _NAMES, "experiment")
    return ALIASES.get(name, name)


def take_experiment(argv: Sequence[str], *, usage: str, page: str) -> tuple[str, Experiment]:
    """The experiment's name and values; the arguments are those of `take_name`.

    Raises:
      UserError: no name, an unknown one, or an unknown objective.
      SystemExit: with status 0, after printing the page for --help.
    """
    name = find_name(take_name(argv, _NAMES, what="experiment", usage=usage, page=page))
    objective = peek(argv[1:], "--objective").objective
    if objective is None:
        return name, EXPERIMENTS[name]
    # Only for a class that the user names: a model's directory must not choose code of this directory to run.
    with _working_directory_on_path():
        return name, EXPERIMENTS[name].with_objective(_make_objective(objective))


def _make_objective(name: str) -> Objective:
    kind = find_objective(name)
    try:
        return kind()
    except TypeError as error:
        raise UserError(
            f"--objective {name!r} must have all methods of an objective, and a default for each setting: "
            f"{error}"
        ) from None


@contextlib.contextmanager
def _working_directory_on_path() -> Iterator[None]:
    """Lets Python import modules of the working directory, which an installed script does not search."""
    is_new = "" not in sys.path
    if is_new:
        sys.path.append("")
    try:
        yield
    finally:
        if is_new:
            sys.path.remove("")
