"""GLUE's data sets, from the folders as GLUE publishes them or from TFDS by name."""

import dataclasses
from pathlib import Path
from typing import Any

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.glue_tasks import GlueTask
from data_pipeline.tasks.names import GlueSplit
from data_pipeline.tasks.records import Place, check_columns, split_tabs
from data_pipeline.tasks.texts import TextExample

# QQP as published has some 20 broken lines among 364,000. More than this share is another kind of file.
_BROKEN_LINES = 0.001

_TFDS_SPLITS: dict[GlueSplit, str] = {
    "train": "train",
    "dev": "validation",
    "dev_mismatched": "validation_mismatched",
    "test": "test",
    "test_mismatched": "test_mismatched",
}


@dataclasses.dataclass(frozen=True)
class GlueData:
    examples: list[TextExample]
    """In the order of the file, which is the order of a submission. Without labels in test sets."""
    broken: tuple[Place, ...] = ()
    """Lines of a training or development set with too few columns, which give no example."""


def read_glue(source: str, task: GlueTask, split: GlueSplit, tfds_data_dir: str | None = None) -> GlueData:
    """One split of a task.

    Args:
      source: the folder of GLUE or of the task, or `tfds:glue/NAME`.
      tfds_data_dir: where TFDS keeps its data; None for its default.

    Raises:
      UserError: the task has no such split; no such file; not UTF-8; a column is missing; more than one line
        in 1,000 has too few columns, or any line of a test set; no examples.
    """
    if split not in task.files:
        raise UserError(f"{task.name} has no split {split}; it has {', '.join(task.files)}")
    if tfds.is_tfds(source):
        builder = tfds.open_tfds(source, tfds_data_dir, "give the folder of GLUE's files")
        return GlueData(_read_tfds(builder, source, task, split))
    folder = Path(source)
    if (folder / task.folder).is_dir():
        folder /= task.folder
    file = folder / task.files[split]
    if not file.is_file():
        raise UserError(f"{source} has neither {task.folder}/{file.name} nor {file.name}")
    return _read_file(file, task, split)


def _read_file(file: Path, task: GlueTask, split: GlueSplit) -> GlueData:
    lines = split_tabs(file)
    is_test = split in task.submissions
    names = list(task.names_without_header)
    if is_test or not names:
        _, names = next(lines)
    columns = task.columns if is_test else (*task.columns, task.label_column)
    check_columns(file, names, columns)
    places = [names.index(column) for column in columns]
    examples: list[TextExample] = []
    broken: list[Place] = []
    for place, values in lines:
        if len(values) == len(names):
            examples.append(_make_example(place, [values[index] for index in places], task))
        elif is_test:
            raise UserError(f"{place} has {len(values)} columns instead of {len(names)}")
        else:
            broken.append(place)
    if len(broken) > _BROKEN_LINES * len(examples):
        raise UserError(f"{broken[0]} has not {len(names)} columns, one of {len(broken)} such lines")
    if not examples:
        raise UserError(f"{file} has no example below its first line")
    return GlueData(examples, tuple(broken))


def _make_example(place: Place, values: list[str], task: GlueTask) -> TextExample:
    """`values` are those of the task's columns, then the label where there is one."""
    width = len(task.columns)
    if not any(value.strip() for value in values[:width]):
        raise UserError(f"{place} has no text")
    return TextExample(
        place=place,
        text=values[0],
        pair=values[1] if task.is_pair else None,
        label=values[width].strip() if len(values) > width else None,
    )


def _read_tfds(builder: Any, source: str, task: GlueTask, split: GlueSplit) -> list[TextExample]:
    """The examples in GLUE's own order, which TFDS keeps as `idx`."""
    tfds.check_config(source, builder, "glue", task.name, task.name)
    columns = task.tfds_columns or task.columns
    check_columns(source, builder.info.features, (*columns, "label", "idx"))
    feature = builder.info.features["label"]
    # MNLI's are `validation_matched` where others' are `validation`.
    names = (_TFDS_SPLITS[split], f"{_TFDS_SPLITS[split]}_matched")
    dataset = tfds.read_split(builder, tfds.choose_split(source, builder, names))
    examples = []
    for record in sorted(dataset.as_numpy_iterator(), key=lambda record: record["idx"]):
        texts = [record[column].decode() for column in columns]
        label = [] if split in task.submissions else [_tfds_label(record["label"], feature, task)]
        examples.append(_make_example(Place(f"{source} {split}", int(record["idx"])), texts + label, task))
    return examples


def _tfds_label(value: Any, feature: Any, task: GlueTask) -> str:
    """A label as GLUE's files write it. TFDS has words of its own, such as unacceptable, for 0 and 1."""
    if not task.labels:
        return str(value)
    word = feature.int2str(int(value))
    return word if word in task.labels else task.labels[int(value)]
