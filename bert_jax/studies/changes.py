"""Settings changed by their dotted names, as flags on the command line do."""

import dataclasses
import difflib
from typing import Any, TypeVar

from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Changes
from data_pipeline.errors import UserError

T = TypeVar("T")


def with_changes(value: T, changes: Changes, where: str, prefix: str = "") -> T:
    """A frozen dataclass with some of its settings, and of those of its parts, changed.

    All changes of a part are made at once, since one alone may contradict what is there.

    Args:
      value: the dataclass.
      changes: dotted name -> value, such as {"model.num_layers": 4}; the items of a tuple have numbers, as in
        `data.phases.0.max_seq_length`.
      where: whose changes they are, for messages.
      prefix: what comes before the names in the whole, for messages; ends in a dot unless it is empty.

    Raises:
      UserError: there is no setting of a name, or the settings contradict each other.
    """
    names = [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    of_parts: dict[str, dict[str, Any]] = {}
    for path, new in changes.items():
        name, _, rest = path.partition(".")
        if name not in names or (rest and not _has_parts(getattr(value, name))):
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names
            raise UserError(
                f"{where}: unknown setting {prefix + path!r}; nearest: {', '.join(prefix + n for n in near)}"
            )
        if rest:
            of_parts.setdefault(name, {})[rest] = new
        else:
            part = getattr(value, name)
            if dataclasses.is_dataclass(part) and not dataclasses.is_dataclass(new):
                raise UserError(
                    f"{where}: {prefix}{path} is {new!r}; its settings are changed one by one, such as "
                    f"{prefix}{path}.{dataclasses.fields(part)[0].name}"
                )
            given[name] = _hashable(new)
    for name, inner in of_parts.items():
        part = given.get(name, getattr(value, name))
        change = _with_changed_items if isinstance(part, tuple) else with_changes
        given[name] = change(part, inner, where, f"{prefix}{name}.")
    try:
        return dataclasses.replace(value, **given)  # type: ignore[type-var]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _has_parts(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or (
        isinstance(value, tuple) and all(map(dataclasses.is_dataclass, value))
    )


def _with_changed_items(items: tuple[Any, ...], changes: Changes, where: str, prefix: str) -> tuple[Any, ...]:
    changed = list(items)
    of_items: dict[str, dict[str, Any]] = {}
    for path, new in changes.items():
        number, _, rest = path.partition(".")
        of_items.setdefault(number, {})[rest] = new
    for number, inner in of_items.items():
        if number not in map(str, range(len(items))):
            valid = f"items are numbered 0 to {len(items) - 1}" if items else "there are no items"
            raise UserError(f"{where}: unknown setting {prefix + number!r}; {valid}")
        changed[int(number)] = with_changes(items[int(number)], inner, where, f"{prefix}{number}.")
    return tuple(changed)


def _hashable(value: Any) -> Any:
    """Lists as tuples, which are what settings hold."""
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def given_settings(experiment: Experiment, given: frozenset[str]) -> Changes:
    """The settings of the experiment that flags set, by their dotted names; other flags are left out."""
    names = {field.name for field in dataclasses.fields(experiment)}
    return {path: value_of(experiment, path) for path in sorted(given) if path.partition(".")[0] in names}


def value_of(experiment: Experiment, path: str) -> Any:
    """The setting of a dotted name; None if the experiment has none."""
    value: Any = experiment
    for name in path.split("."):
        if isinstance(value, tuple):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = getattr(value, name, None)
    return value
