"""Splits a data set in one file into training and development examples."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from data_pipeline.errors import UserError

E = TypeVar("E")


def split_fold(
    examples: Sequence[E], text_of: Callable[[E], str], folds: int, fold: int
) -> tuple[list[E], list[E]]:
    """The examples outside a fold, to train on, and those in it, for development.

    A hash of `text_of(example)` decides the fold, so examples with the same text are in the same fold: a
    model trained on one of them would know something of the others.

    Raises UserError if either list is empty.
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
