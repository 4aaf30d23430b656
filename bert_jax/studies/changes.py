"""Settings changed by their dotted names, as flags on the command line do."""

import dataclasses
import difflib
from typing import Any, TypeVar

from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Changes
from data_pipeline.errors import UserError

T = TypeVar("T")


def with_changes(value: T, changes: Changes, where: str) -> T:
    """A frozen dataclass with some of its settings, and of those of its parts, changed.

    All changes of a part are made at once, since one alone may contradict what is there.

    Args:
      value: the dataclass.
      changes: dotted name -> value, such as {"model.num_layers": 4}.
      where: whose changes they are, for messages.

    Raises:
      UserError: there is no setting of a name, or the settings contradict each other.
    """
    names = [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    of_parts: dict[str, dict[str, Any]] = {}
    for path, new in changes.items():
        name, _, rest = path.partition(".")
        if name not in names or (rest and not dataclasses.is_dataclass(getattr(value, name))):
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names
            raise UserError(f"{where}: unknown setting {path!r}; nearest: {', '.join(near)}")
        if rest:
            of_parts.setdefault(name, {})[rest] = new
        else:
            given[name] = new
    for name, inner in of_parts.items():
        given[name] = with_changes(given.get(name, getattr(value, name)), inner, where)
    try:
        return dataclasses.replace(value, **given)  # type: ignore[type-var]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def given_settings(experiment: Experiment, given: frozenset[str]) -> Changes:
    """The settings of the experiment that flags set, by their dotted names; of a tuple's items the tuple."""
    settings: dict[str, Any] = {}
    for path in sorted(given):
        value: Any = experiment
        names: list[str] = []
        for name in path.split("."):
            if not hasattr(value, name):
                break
            value = getattr(value, name)
            names.append(name)
        if names:
            settings[".".join(names)] = value
    return settings
