"""Settings as text: dotted paths and their values, what differs, and back from JSON."""

import dataclasses
import typing
from collections.abc import Container, Mapping
from typing import Any, TypeVar

from bert_jax.config import MODEL_SHAPE, ModelConfig

T = TypeVar("T")


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted paths of a dataclass's fields and their values: {"model.num_layers": 12, ...}."""
    if dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, tuple):
        parts = [(str(i), item) for i, item in enumerate(value)]
    else:
        return {prefix: value}
    rows: dict[str, Any] = {}
    for name, item in parts:
        rows.update(flatten(item, f"{prefix}.{name}" if prefix else name))
    return rows


def differences(before: Mapping[str, Any], now: Mapping[str, Any], may_change: Container[str]) -> list[str]:
    """`setting before -> now` for each setting that differs and must not."""
    return [
        f"{path} {before.get(path, 'unset')} -> {now.get(path, 'unset')}"
        for path in {**before, **now}
        if before.get(path) != now.get(path) and path not in may_change
    ]


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of `dataclasses.asdict` for a value that was written to JSON and read back.

    A field that an older file lacks gets its default, which reproduces the behaviour before the field
    existed; a model's shape and objective must be in the file.

    Raises:
      KeyError, TypeError: a field is unknown; one of a model's shape, or one without a default, is missing; a
        value stands where an object should.
    """
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        # An empty value, whatever its type, gives no field.
        if value and not isinstance(value, Mapping):
            raise TypeError(f"{value!r} stands where {', '.join(hints)} should")
        if unknown := set(value) - set(hints):
            raise KeyError(f"unknown settings {sorted(unknown)}")
        needed = (*MODEL_SHAPE, "objective") if kind is ModelConfig else ()
        named = [name for name in hints if name in value or name in needed]
        return typing.cast(T, kind(**{name: from_json(hints[name], value[name]) for name in named}))
    if typing.get_origin(kind) is tuple:
        return typing.cast(T, tuple(from_json(typing.get_args(kind)[0], item) for item in value))
    return value
