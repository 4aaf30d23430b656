"""Checks of settings, which raise UserError with the setting's name and what would be valid."""

import math
import numbers
import typing
from typing import Any

from data_pipeline.errors import UserError

LARGEST = 2**31 - 1
"""Steps and sizes are int32 on the devices."""


def check_choices(settings: Any, prefix: str) -> None:
    """Raises UserError unless each field of a dataclass that is a Literal has one of its values.

    Args:
      settings: the dataclass.
      prefix: what stands before the fields' names in the message, such as "model.".
    """
    for name, hint in typing.get_type_hints(type(settings)).items():
        valid, value = typing.get_args(hint), getattr(settings, name)
        if typing.get_origin(hint) is typing.Literal and value not in valid:
            raise UserError(f"{prefix}{name} is {value!r}; valid: {', '.join(map(str, valid))}")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UserError(f"{name} is {value!r}; it must be a number")


def _check_whole(name: str, value: Any) -> None:
    _check_number(name, value)
    if not isinstance(value, numbers.Integral):
        raise UserError(f"{name} is {value!r}; it must be a whole number")


def check_positive(name: str, value: int) -> None:
    """Raises UserError unless a setting is at least 1 and an int32."""
    _check_whole(name, value)
    if value < 1:
        raise UserError(f"{name} is {value}; it must be at least 1")
    if value > LARGEST:
        raise UserError(f"{name} is {value}; it must be at most {LARGEST}")


def check_size(name: str, value: int, most: int = LARGEST) -> None:
    """Raises UserError unless a setting is an int from 1 to `most`."""
    if type(value) is not int or not 1 <= value <= most:
        raise UserError(f"{name} is {value!r}; it must be a whole number from 1 to {most}")


def check_above_zero(name: str, value: float) -> None:
    """Raises UserError unless a setting is a finite number above 0."""
    _check_number(name, value)
    if not 0 < value < math.inf:
        raise UserError(f"{name} is {value:g}; it must be above 0 and finite")


def check_not_negative(name: str, value: float) -> None:
    """Raises UserError unless a setting is a finite number of at least 0."""
    _check_number(name, value)
    if not 0 <= value < math.inf:
        raise UserError(f"{name} is {value:g}; it must be at least 0 and finite")
    if isinstance(value, int) and value > LARGEST:
        raise UserError(f"{name} is {value}; it must be at most {LARGEST}")


def check_dropout_rate(name: str, value: float) -> None:
    """Raises UserError unless a setting is a probability that 16 random bits can tell from 1."""
    _check_number(name, value)
    if not 0 <= value < 0.9999:
        raise UserError(f"{name} is {value}; it must be at least 0 and below 0.9999")


def check_seed(name: str, value: int) -> None:
    """Raises UserError unless a setting is a uint32."""
    _check_whole(name, value)
    if not 0 <= value < 2**32:
        raise UserError(f"{name} is {value}; it must be from 0 to {2**32 - 1}")
