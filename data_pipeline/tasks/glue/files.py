"""The files of GLUE as published, its TensorFlow datasets, and files of texts to predict."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.classify import TextExample
from data_pipeline.tasks.finetuning.records import (
    Place,
    Record,
    check_columns,
    check_names,
    not_empty,
    read_records,
    split_tabs,
)
from data_pipeline.tasks.glue.tasks import GlueSplit, GlueTask

# QQP as published has some 20 broken lines among 364,000. A larger fraction means another kind of file.
_BROKEN_LINES = 0.001


def read_glue(
    source: str, task: GlueTask, split: GlueSplit, encoding: str = "utf-8"
) -> tuple[list[TextExample], tuple[Place, ...]]:
    """The examples of one split of a task, and the lines left out for their number of columns.

    Examples are in the order of the file, which is that of a submission; those of test sets have no labels.

    Args:
      source: the directory of GLUE or of the task, or `tfds:glue/NAME`.

    Raises:
      UserError: the task has no such split; no such file; not in the encoding; a column is missing; more than
        one line in 1,000 has the wrong number of columns, or any line of a test set; no examples.
    """
    if split not in task.files:
        raise UserError(f"{task.name} has no split {split}; it has {', '.join(task.files)}")
    if tfds.is_tfds(source):
        builder = tfds.open_tfds(source, advice="give the directory of GLUE's files")
        return _read_tfds(builder, source, task, split), ()
    file = glue_file(source, task, split)
    if not file.is_file():
        raise UserError(f"{source} has neither {task.directory}/{file.name} nor {file.name}")
    opened = open_glue(file, task, split, encoding)
    label = None if split in task.submissions else task.label_column
    return [glue_example(record, opened.columns, label) for record in opened.read()], opened.broken


def glue_file(directory: str, task: GlueTask, split: GlueSplit) -> Path:
    """Where a split's file belongs: in the task's directory inside the given one, or in the given one."""
    inner = Path(directory) / task.directory
    return (inner if inner.is_dir() else Path(directory)) / task.files[split]


@dataclasses.dataclass(frozen=True)
class GlueFile:
    """How to read a file in the form of a GLUE task, which `open_glue` has checked."""

    columns: tuple[str, ...]
    """Column of the text, or the two columns of a pair."""
    read: Callable[[], Iterator[Record]]
    """Returns an iterator over the records, which are read one by one."""
    broken: tuple[Place, ...] = ()
    """Lines with the wrong number of columns, which are left out."""


def open_glue(
    file: Path, task: GlueTask, split: GlueSplit | None = None, encoding: str = "utf-8"
) -> GlueFile:
    """Checks a file and returns how to read its records. Columns may also have TFDS's names.

    Args:
      split: the split that the file holds. None: a user's file, which may also be a .csv or .jsonl, and
        counts as a test set if it has no column of labels.

    Raises:
      UserError: no such file; not in the encoding; a column is missing, or two have the same name; more than
        one line in 1,000 has the wrong number of columns, or any line of a test set; no examples, which may
        be raised only when the records are read.
    """
    if split is None and file.suffix != ".tsv":
        columns = _text_columns(task, next(read_records(file, (), encoding)).fields)
        return GlueFile(columns, functools.partial(read_records, file, columns, encoding))
    _, first = next(split_tabs(file, encoding))
    is_headerless = bool(task.names_without_header) and not set(task.columns) <= set(first)
    if split is None:  # a user's table, which may have a header with other names
        is_headerless = is_headerless and _is_labelled(first, task)
    names = task.names_without_header if is_headerless else tuple(first)
    is_test = task.label_column not in names if split is None else split in task.submissions
    columns = _text_columns(task, names)
    check_columns(file, names, columns if is_test else (*columns, task.label_column))
    check_names(file, names)
    broken = _find_broken(split_tabs(file, encoding), len(names), is_test)
    read = functools.partial(_read, file, encoding, names, is_headerless)
    return GlueFile(columns, read, broken)


def glue_example(record: Record, columns: Sequence[str], label: str | None = None) -> TextExample:
    """The example of one record. One text of a pair may be empty. Raises UserError if all texts are.

    Args:
      columns: columns of the texts.
      label: column of the label; None for texts to predict.
    """
    texts = ["" if record.is_blank(name) else record.text(name) for name in columns]
    if not any(texts):
        raise UserError(f"{record.place} has no text")
    return TextExample(
        place=record.place,
        text=texts[0],
        pair=texts[1] if len(texts) > 1 else None,
        label=None if label is None else record.label(label),
    )


def _is_labelled(first: Sequence[str], task: GlueTask) -> bool:
    """Whether the first line is an example and no header: it has all columns, and a label in its place."""
    names = task.names_without_header
    return len(first) == len(names) and first[names.index(task.label_column)] in task.labels


def _text_columns(task: GlueTask, names: Collection[str]) -> tuple[str, ...]:
    """The task's own text columns, or TFDS's if the file has only those."""
    is_tfds = bool(task.tfds_columns) and set(task.tfds_columns) <= set(names)
    return task.tfds_columns if is_tfds and not set(task.columns) <= set(names) else task.columns


def _find_broken(
    lines: Iterable[tuple[Place, list[str]]], num_columns: int, is_test: bool
) -> tuple[Place, ...]:
    """The places of lines with the wrong number of columns. Raises UserError if there are too many."""
    broken, num_whole = [], 0
    for place, values in lines:
        if len(values) == num_columns:
            num_whole += 1
        else:
            broken.append(place)
    if broken and (is_test or len(broken) > _BROKEN_LINES * num_whole):
        raise UserError(
            f"{broken[0]} does not have {num_columns} columns; lines with another number: {len(broken)}"
        )
    return tuple(broken)


def _read(file: Path, encoding: str, names: Sequence[str], is_headerless: bool) -> Iterator[Record]:
    lines = split_tabs(file, encoding)
    if not is_headerless:
        next(lines)
    whole = (
        Record(place, dict(zip(names, values, strict=True)))
        for place, values in lines
        if len(values) == len(names)
    )
    yield from not_empty(file, whole)


def _read_tfds(builder: Any, source: str, task: GlueTask, split: GlueSplit) -> list[TextExample]:
    """The examples in GLUE's own order, which TFDS keeps as `idx`."""
    tfds.check_config(source, builder, "glue", task.name, task.name)
    columns = task.tfds_columns or task.columns
    check_columns(source, builder.info.features, (*columns, "label", "idx"))
    feature = builder.info.features["label"]
    name = split.replace("dev", "validation")
    # MNLI has `validation_matched` and `test_matched` where other tasks have `validation` and `test`.
    dataset = tfds.read_split(builder, tfds.choose_split(source, builder, (name, f"{name}_matched")))
    examples = []
    for record in sorted(dataset.as_numpy_iterator(), key=lambda record: record["idx"]):
        place = Place(f"{source} {split}", int(record["idx"]), "idx")
        fields = {column: tfds.decode(record[column], place) for column in columns}
        label = None if split in task.submissions else "label"
        if label:
            fields[label] = _tfds_label(record[label], feature, task)
        examples.append(glue_example(Record(place, fields), columns, label))
    return examples


def _tfds_label(value: Any, feature: Any, task: GlueTask) -> str:
    """A label as GLUE's files write it; TFDS has its own words, such as unacceptable, for 0 and 1."""
    if not task.labels:
        return str(value)
    word = feature.int2str(int(value))
    return word if word in task.labels else task.labels[int(value)]
