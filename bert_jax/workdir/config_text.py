"""Settings as text: dotted paths and their values, what differs, JSON and back."""

import dataclasses
import typing
from collections.abc import Container, Mapping
from typing import Any, TypeVar

from bert_jax.model_config import MODEL_SIZES, ModelConfig
from bert_jax.objectives import Objective, find_objective, objective_name

T = TypeVar("T")

_SHOWN = 3  # most unknown settings that a message lists

_OF_EVERY_MODEL = (
    *MODEL_SIZES,
    "positions",
    "normalization",
    "normalization_place",
    "feed_forward",
    "attention",
    "activation",
    "layer_norm_epsilon",
)
"""The settings of a model that every file has; those that came later may be missing."""


def to_json(value: Any) -> Any:
    """A dataclass as nested dicts and lists for JSON; an objective's dict begins with its name."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"name": objective_name(value), **fields} if isinstance(value, Objective) else fields
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of `to_json`.

    A field that an older file lacks gets its default, which reproduces the behaviour before the field
    existed; a model's shape, but for what came later, and a run's objective must be in the file.

    Raises:
      TypeError: a field is unknown; one of a model's shape, or one without a default, is missing; a value
        stands where an object should.
      KeyError: an objective has no name.
      UserError: the objective is unknown.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        # An empty value, whatever its type, gives no field.
        if value and not isinstance(value, Mapping):
            raise TypeError(f"{value!r} stands where the settings of {kind.__name__} should")
        value = dict(value or {})
        if issubclass(kind, Objective):
            kind = typing.cast(type[T], find_objective(value.pop("name")))
        types = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)  # type: ignore[arg-type]
        hints = {field.name: types[field.name] for field in fields}
        if unknown := sorted(set(value) - set(hints)):
            more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            raise TypeError(f"unknown settings {', '.join(unknown[:_SHOWN])}{more}")
        needed = {field.name for field in fields if _has_no_default(field) or hints[field.name] is Objective}
        needed.update(_OF_EVERY_MODEL if kind is ModelConfig else ())
        if lacking := sorted(needed - set(value)):
            raise TypeError(f"no {', '.join(lacking)}")
        return kind(**{name: from_json(hints[name], value[name]) for name in hints if name in value})
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return typing.cast(T, tuple(from_json(parts[0], item) for item in value))
    if value is not None and len(parts) == 2 and parts[1] is type(None):  # an optional one
        return typing.cast(T, from_json(parts[0], value))
    return value


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted paths of a dataclass's fields and their values: {"model.num_layers": 12, ...}.

    The name of an objective stands at its own path: {"objective": "mlm", ...}.
    """
    rows: dict[str, Any] = {}
    if isinstance(value, Objective):
        rows[prefix] = objective_name(value)
    if dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, tuple):
        parts = [(str(i), item) for i, item in enumerate(value)]
    else:
        return {prefix: value}
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
