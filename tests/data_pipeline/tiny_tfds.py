"""TensorFlow datasets of a few examples on disk, as a download would have left them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds


def store(
    directory: Path,
    name: str,
    features: Mapping[str, Any],
    parts: Mapping[str, Sequence[dict]],
    config: str | None = None,
    version: str = "1.0.0",
) -> None:
    """Writes the examples of each part, in their order."""
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        config=config,
        features=tfds.features.FeaturesDict(dict(features)),
        split_datasets={part: list(enumerate(examples)) for part, examples in parts.items()},
        data_dir=str(directory),
        disable_shuffling=True,
    )


def text_features() -> dict[str, Any]:
    """A text alone."""
    return {"text": tfds.features.Text()}


def cola_features() -> dict[str, Any]:
    """Those of CoLA."""
    label = tfds.features.ClassLabel(names=["unacceptable", "acceptable"])
    return {"sentence": tfds.features.Text(), "label": label, "idx": tfds.features.Scalar(np.int32)}


def mnli_features() -> dict[str, Any]:
    """Those of MNLI."""
    label = tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"])
    pair = {"premise": tfds.features.Text(), "hypothesis": tfds.features.Text()}
    return {**pair, "label": label, "idx": tfds.features.Scalar(np.int32)}


def squad_features() -> dict[str, Any]:
    """Those of SQuAD 2.0 that are read."""
    text = tfds.features.Text()
    answers = tfds.features.Sequence({"text": text, "answer_start": tfds.features.Scalar(np.int32)})
    impossible = tfds.features.Scalar(np.bool_)
    return {"id": text, "question": text, "context": text, "answers": answers, "is_impossible": impossible}


def conll_features(tags: Sequence[str]) -> dict[str, Any]:
    """Those of CoNLL-2003, whose other tags are A and B."""
    other = tfds.features.Sequence(tfds.features.ClassLabel(names=["A", "B"]))
    words, ner = tfds.features.Text(), tfds.features.ClassLabel(names=list(tags))
    columns = {"chunks": other, "ner": tfds.features.Sequence(ner), "pos": other}
    return {**columns, "tokens": tfds.features.Sequence(words)}


def table_features(labels: Sequence[str]) -> dict[str, Any]:
    """A text and its class."""
    return {**text_features(), "label": tfds.features.ClassLabel(names=list(labels))}
