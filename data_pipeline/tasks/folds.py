"""Data sets of one file: which examples are trained on, and which are the development set."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from data_pipeline.errors import UserError

E = TypeVar("E")


def split_fold(
    examples: Sequence[E], text_of: Callable[[E], str], folds: int, fold: int
) -> tuple[list[E], list[E]]:
    """The examples that are not of a fold, and those that are.

    A hash of `text_of` an example says of which fold it is, so those that share it are of one: a model that
    has seen one of them knows something of the others.

    Raises UserError if either is empty.
    """
    split: tuple[list[E], list[E]] = ([], [])
    for example in examples:
        number = int.from_bytes(hashlib.sha256(text_of(example).encode()).digest()) % folds
        split[number == fold].append(example)
    if not all(split):
        raise UserError(
            f"the data set has too few different texts for {folds} folds: number {fold} would leave training "
            "or development without examples"
        )
    return split
