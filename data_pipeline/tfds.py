"""TensorFlow Datasets (TFDS): `tfds:NAME` in place of a directory or a file."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from data_pipeline.errors import UserError

_PREFIX = "tfds:"


@dataclasses.dataclass(frozen=True)
class TfdsSplit:
    """A split of a TFDS data set, which is read like a file of records."""

    source: str
    """`tfds:NAME`"""
    split: str

    def __str__(self) -> str:
        return f"{self.source} {self.split}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields, in the data set's order."""
        return tuple(open_tfds(self.source).info.features)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the examples in the order of the data set's files, with values of JSON's types.

        A class label becomes its name, or None where TFDS has -1, as in test sets without labels. Raises
        UserError if a text is not UTF-8.
        """
        builder = open_tfds(self.source)
        features = builder.info.features
        examples = read_split(builder, self.split).as_numpy_iterator()
        for number, example in enumerate(examples, start=1):
            yield _plain(example, features, f"{self}, example {number}")


def is_tfds(name: str) -> bool:
    """Whether it is `tfds:NAME` rather than a directory or a file."""
    return name.startswith(_PREFIX)


@functools.cache  # every split of a data set opens it
def open_tfds(
    source: str, data_dir: str | None = None, advice: str = "name a directory with the data set's files"
) -> Any:
    """The builder of `tfds:NAME`, downloaded if it is not on disk.

    Args:
      data_dir: where TFDS keeps its data; None for its default.
      advice: what else the user can do, for the error message.

    Raises:
      UserError: there is no such data set, or it cannot be downloaded or read.
    """
    try:
        import tensorflow_datasets as tfds

        import data_pipeline.tensorflow_cpu  # noqa: F401  hides GPUs from TensorFlow, for jax

        builder = tfds.builder(source.removeprefix(_PREFIX), data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # TFDS raises whatever its network and file layers raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{source} is not available ({reason}); {advice}") from error
    return builder


def read_split(builder: Any, split: str) -> Any:
    """The tf.data.Dataset of a split, in the order of its files."""
    import tensorflow_datasets as tfds

    # Without autocache, because TensorFlow warns if reading stops before the last example of a cached one.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    return builder.as_dataset(split=split, shuffle_files=False, read_config=config)


def check_config(source: str, builder: Any, name: str, config: str, task: str) -> None:
    """Raises UserError if this is the data set `name`, but not in the configuration of the task.

    TFDS takes the first configuration if none is named, and those of GLUE are similar enough that training
    on the wrong one would not fail.
    """
    info = builder.info
    if info.name == name and info.config_name != config:
        raise UserError(f"{source} is {name}/{info.config_name}; for {task} give {_PREFIX}{name}/{config}")


def text_fields(builder: Any) -> list[str]:
    """Names of the fields that hold one string each, in the data set's order."""
    features = builder.info.features.items()
    return [name for name, feature in features if feature.shape == () and feature.np_dtype == np.object_]


def choose_split(source: str, builder: Any, names: Sequence[str]) -> str:
    """Returns the first of `names` that is a split of the data set. Raises UserError if none is."""
    splits = builder.info.splits
    for name in names:
        if name in splits:
            return name
    raise UserError(f"{source} has no split {' or '.join(names)}; it has {', '.join(splits)}")


def decode(text: bytes, place: object) -> str:
    """Decodes UTF-8. Raises UserError, whose message names `place`, if it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise UserError(f"{place} is not UTF-8; convert the data set to UTF-8") from None


def _plain(value: Any, feature: Any, place: str) -> Any:
    feature = getattr(feature, "feature", feature)  # the element type of a Sequence
    if isinstance(value, dict):
        return {name: _plain(part, feature[name], place) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(part, feature, place) for part in value]
    if isinstance(value, bytes):
        return decode(value, place)
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if value >= 0 else None
    return value.item()
