"""Labels as words in files, and as the numbers that a model is trained on."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.records import Place

_MOST_LISTED = 20
_LARGEST = float(np.finfo(np.float32).max)

Label = TypeVar("Label", str, int)


class Labelled(Protocol):
    """An example of any task with one label."""

    @property
    def place(self) -> Place:
        """Where the example was read, for messages."""

    @property
    def label(self) -> str | None:
        """The label as it is written in the file; None if there is none."""


def find_labels(examples: Sequence[Labelled]) -> tuple[str, ...]:
    """The labels of a data set, sorted: as numbers if all are numbers, otherwise as text.

    Raises UserError if an example has no label, or if all have the same one.
    """
    labels = {require_label(example.place, example.label) for example in examples}
    if len(labels) < 2:
        source = examples[0].place.source
        raise UserError(f"{source} has no label but {', '.join(labels)}; classification needs two or more")
    if all(parse_number(label) is not None for label in labels):
        return tuple(sorted(labels, key=lambda label: (parse_number(label), label)))
    return tuple(sorted(labels))


def label_ids(examples: Sequence[Labelled], labels: Sequence[str]) -> np.ndarray:
    """int32 [R]: the index in `labels` of each example's label. Raises UserError if one is not among them."""
    numbers = {label: number for number, label in enumerate(labels)}
    ids = np.empty(len(examples), np.int32)
    for row, example in enumerate(examples):
        label = require_label(example.place, example.label)
        if label not in numbers:
            raise UserError(f"{example.place} has the label {label!r}; it must be one of {listed(labels)}")
        ids[row] = numbers[label]
    return ids


def label_targets(examples: Sequence[Labelled], labels: Sequence[str]) -> dict[str, np.ndarray]:
    """{"labels": `label_ids`}, or {"values": `label_values`} in regression, where `labels` is empty."""
    return {"labels": label_ids(examples, labels)} if labels else {"values": label_values(examples)}


def optional_label_targets(
    examples: Sequence[Labelled], labels: Sequence[str], training: Sequence[Labelled]
) -> dict[str, np.ndarray]:
    """As `label_targets`, for a test set; an empty dict if no example has a label.

    -1 means no label, as in data sets of Hugging Face, unless it is a label of `training`. In regression,
    where any number may be new, it means that only if all are -1.
    """
    if not labels and _numbers(examples) == {-1} and -1 not in _numbers(training):
        return {}
    trained = {example.label for example in training}
    none = {None, "-1"} - trained if labels else {None}
    has_labels = all_or_none((example.place, example.label not in none) for example in examples)
    return label_targets(examples, labels) if has_labels else {}


def all_or_none(labelled: Iterable[tuple[Place, bool]], label: str = "label") -> bool:
    """Whether all examples have a label. Raises UserError naming the first without if only some have one."""
    found = list(labelled)
    without = [place for place, is_labelled in found if not is_labelled]
    if without and len(without) < len(found):
        raise UserError(f"{without[0]} has no {label}, though other examples have one")
    return not without


def label_values(examples: Sequence[Labelled]) -> np.ndarray:
    """float32 [R]: each example's label as a number. Raises UserError if float32 cannot hold one."""
    values = np.empty(len(examples), np.float32)
    for row, example in enumerate(examples):
        label = require_label(example.place, example.label)
        value = parse_number(label)
        if value is None:
            raise UserError(
                f"{example.place} has the label {label!r}; regression needs a number that fits float32"
            )
        values[row] = value
    return values


def _numbers(examples: Sequence[Labelled]) -> set[float | None]:
    return {parse_number(example.label or "") for example in examples}


def require_label(place: Place, label: Label | None) -> Label:
    """The label of an example of training or development. Raises UserError if it has none."""
    if label is None:
        raise UserError(f"{place} has no label; only texts to predict go without")
    return label


def parse_number(word: str) -> float | None:
    """A word as a number; None if it is not one that float32 holds. 1_5, Python for 15, does not count."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST and "_" not in word else None


def listed(labels: Sequence[str]) -> str:
    """The labels in a row for a message, at most 20 of them."""
    first = ", ".join(labels[:_MOST_LISTED])
    more = len(labels) - _MOST_LISTED
    return f"{first} and {more} more" if more > 0 else first
