"""Checks of settings, which raise UserError with the setting's name and what would be valid."""

import dataclasses
import difflib
import math
import numbers
import types
import typing
from collections.abc import Collection
from typing import Any

from data_pipeline.errors import UserError

LARGEST = 2**31 - 1
"""Steps and sizes are int32 on the devices."""


def check_types(settings: Any, prefix: str) -> None:
    """Raises UserError unless each field of a dataclass has a value of its type.

    Args:
      settings: the dataclass.
      prefix: what stands before the fields' names in the message, such as "model.".
    """
    hints = typing.get_type_hints(type(settings))
    for name in (field.name for field in dataclasses.fields(settings)):
        value = getattr(settings, name)
        if not _is_of(hints[name], value):
            is_choice = typing.get_origin(hints[name]) is typing.Literal
            words = f"{'valid:' if is_choice else 'it must be'} {_in_words(hints[name])}"
            raise UserError(f"{prefix}{name} is {value!r}; {words}")


def check_name(name: str, valid: Collection[str], what: str, others: str = "") -> None:
    """Raises UserError, with the most similar valid names or else with all, if a name is not valid.

    `others` says what else is valid.
    """
    if name not in valid:
        near = difflib.get_close_matches(name, valid, n=3, cutoff=0.5)
        known = f"nearest: {', '.join(near)}" if near else f"valid: {', '.join(valid)}"
        raise UserError(f"unknown {what} {name!r}; {known}{others}")


def _is_of(hint: Any, value: Any) -> bool:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in parts
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(part, value) for part in parts)
    if origin is tuple:  # all items of the settings' tuples are of one type
        has_length = isinstance(value, tuple) and (parts[-1] is Ellipsis or len(value) == len(parts))
        return has_length and all(_is_of(parts[0], item) for item in value)
    kind = {float: numbers.Real, int: numbers.Integral}.get(hint, origin or hint)
    return isinstance(value, kind) and (hint is bool or not isinstance(value, bool))


def _in_words(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(map(str, parts))
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(map(_in_words, parts))
    if origin is tuple:
        kind = "a tuple" if parts[-1] is Ellipsis else f"a tuple of {len(parts)}"
        return f"{kind}, of which each item is {_in_words(parts[0])}"
    known = {float: "a number", int: "a whole number", str: "a string", types.NoneType: "None"}
    return known.get(hint, f"a {hint.__name__}")


def check_number(name: str, value: Any) -> None:
    """Raises UserError unless a setting is a number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UserError(f"{name} is {value!r}; it must be a number")


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise UserError(f"{name} is {value!r}; it must be a whole number")


def check_positive(name: str, value: int, most: int = LARGEST) -> None:
    """Raises UserError unless a setting is a whole number from 1 to `most`."""
    _check_whole(name, value)
    if value < 1:
        raise UserError(f"{name} is {value}; it must be at least 1")
    if value > most:
        raise UserError(f"{name} is {value}; it must be at most {most}")


def check_above_zero(name: str, value: float) -> None:
    """Raises UserError unless a setting is a finite number above 0."""
    check_number(name, value)
    if not 0 < value < math.inf:
        raise UserError(f"{name} is {value:g}; it must be above 0 and finite")


def check_not_negative(name: str, value: float) -> None:
    """Raises UserError unless a setting is a finite number of at least 0."""
    check_number(name, value)
    if not 0 <= value < math.inf:
        raise UserError(f"{name} is {value:g}; it must be at least 0 and finite")
    if isinstance(value, int) and value > LARGEST:
        raise UserError(f"{name} is {value}; it must be at most {LARGEST}")


def check_dropout_rate(name: str, value: float) -> None:
    """Raises UserError unless a setting is a probability that 16 random bits can tell from 1."""
    check_number(name, value)
    if not 0 <= value < 0.9999:
        raise UserError(f"{name} is {value}; it must be at least 0 and below 0.9999")


def check_seed(name: str, value: int) -> None:
    """Raises UserError unless a setting is a uint32."""
    _check_whole(name, value)
    if not 0 <= value < 2**32:
        raise UserError(f"{name} is {value}; it must be from 0 to {2**32 - 1}")
