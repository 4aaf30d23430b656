"""Flags of tasks whose data may be in one file, a fold of which is the development set."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from data_pipeline.errors import UserError
from data_pipeline.tasks.finetuning.flags import TaskFlags
from data_pipeline.tasks.finetuning.splits import SPLIT_NAMES, find_file, find_split, require_split
from data_pipeline.tfds import is_tfds

E = TypeVar("E")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldFlags(TaskFlags):
    """How a data set in one file is split."""

    folds: int = 5
    """Number of parts that a single file (such as all.tsv) is split into; no text is in two parts."""
    dev_fold: int = 0
    """Number, from 0, of the part to use as the development set; the others are trained on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds < 2:
            raise UserError(f"folds is {self.folds}; it must be at least 2")
        if not 0 <= self.dev_fold < self.folds:
            raise UserError(
                f"dev_fold is {self.dev_fold}; of {self.folds} folds it must be from 0 to {self.folds - 1}"
            )

    def read_train_and_dev(
        self,
        data: str,
        read: Callable[[Any], Sequence[E]],
        text_of: Callable[[E], str],
        names: Sequence[str] = ("all",),
    ) -> tuple[Sequence[E], Sequence[E]]:
        """The training and development examples, of two files or splits, or of one file that is split here.

        Args:
          data: a directory or tfds:NAME.
          read: file or TensorFlow split -> examples.
          text_of: example -> the text that no two parts may share.
          names: possible names of the single file, without its suffix.

        Raises:
          UserError: a file is missing; the flags ask for folds, but there is a training set.
        """
        if whole := _find_whole(data, names):
            return split_fold(read(whole), text_of, self.folds, self.dev_fold)
        _check_not_alone(data, names[-1])
        train, dev = (require_split(data, split) for split in ("train", "dev"))
        if (self.folds, self.dev_fold) != (FoldFlags.folds, FoldFlags.dev_fold):
            raise UserError(f"--folds and --dev-fold go with one file for all; {data} has a training set")
        return read(train), read(dev)


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


def _find_whole(data: str, names: Sequence[str]) -> Path | None:
    if is_tfds(data) or find_split(Path(data), "train"):
        return None
    whole = find_file(Path(data), names)
    if whole and (dev := find_split(Path(data), "dev")):
        raise UserError(
            f"{data} has {whole.name}, a fold of which is the dev set, and {dev.name}; rename the first to "
            f"train{whole.suffix}, or remove the second"
        )
    return whole


def _check_not_alone(data: str, name: str) -> None:
    """Raises UserError if a directory has a training set and no development set."""
    if is_tfds(data) or find_split(Path(data), "dev"):
        return
    if train := find_split(Path(data), "train"):
        raise UserError(
            f"{data} has no file of the dev set; looked for {', '.join(SPLIT_NAMES['dev'])}; to use a fold "
            f"of the training file as dev set, rename {train.name} to {name}{train.suffix}"
        )
