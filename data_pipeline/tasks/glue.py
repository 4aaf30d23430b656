"""GLUE's data sets, from the folders as GLUE publishes them or from TFDS by name."""

import dataclasses
from pathlib import Path
from typing import Any

from data_pipeline import tfds
from data_pipeline.errors import UserError
from data_pipeline.tasks.glue_files import glue_example, open_glue
from data_pipeline.tasks.glue_tasks import GlueTask
from data_pipeline.tasks.names import GlueSplit
from data_pipeline.tasks.records import Place, Record, check_columns
from data_pipeline.tasks.texts import TextExample

_TFDS_SPLITS: dict[GlueSplit, str] = {
    "train": "train",
    "dev": "validation",
    "dev_mismatched": "validation_mismatched",
    "test": "test",
    "test_mismatched": "test_mismatched",
}


@dataclasses.dataclass(frozen=True)
class GlueExamples:
    """What `read_glue` found in a split."""

    examples: list[TextExample]
    """In the order of the file, which is that of a submission; those of test sets have no labels."""
    broken: tuple[Place, ...] = ()
    """Lines of a training or development set that were left out for their number of columns."""


def read_glue(source: str, task: GlueTask, split: GlueSplit) -> GlueExamples:
    """The examples of one split of a task.

    Args:
      source: the folder of GLUE or of the task, or `tfds:glue/NAME`.

    Raises:
      UserError: the task has no such split; no such file; not UTF-8; a column is missing; more than one line
        in 1,000 has the wrong number of columns, or any line of a test set; no examples.
    """
    if split not in task.files:
        raise UserError(f"{task.name} has no split {split}; it has {', '.join(task.files)}")
    if tfds.is_tfds(source):
        builder = tfds.open_tfds(source, advice="give the folder of GLUE's files")
        return GlueExamples(_read_tfds(builder, source, task, split))
    folder = Path(source)
    if (folder / task.folder).is_dir():
        folder /= task.folder
    file = folder / task.files[split]
    if not file.is_file():
        raise UserError(f"{source} has neither {task.folder}/{file.name} nor {file.name}")
    opened = open_glue(file, task, split)
    label = None if split in task.submissions else task.label_column
    return GlueExamples(
        [glue_example(record, opened.columns, label) for record in opened.read()], opened.broken
    )


def _read_tfds(builder: Any, source: str, task: GlueTask, split: GlueSplit) -> list[TextExample]:
    """The examples in GLUE's own order, which TFDS keeps as `idx`."""
    tfds.check_config(source, builder, "glue", task.name, task.name)
    columns = task.tfds_columns or task.columns
    check_columns(source, builder.info.features, (*columns, "label", "idx"))
    feature = builder.info.features["label"]
    # MNLI has `validation_matched` and `test_matched` where other tasks have `validation` and `test`.
    names = (_TFDS_SPLITS[split], f"{_TFDS_SPLITS[split]}_matched")
    dataset = tfds.read_split(builder, tfds.choose_split(source, builder, names))
    examples = []
    for record in sorted(dataset.as_numpy_iterator(), key=lambda record: record["idx"]):
        place = Place(f"{source} {split}", int(record["idx"]))
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
