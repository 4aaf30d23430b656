"""The flags of `bert-jax convert`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.formats.model_source import ModelSource
from bert_jax.names import ModelFormat, ModelPart


@dataclasses.dataclass(frozen=True)
class Convert:
    """Write a model as a directory of another format.

    Reads the work directory of a run, a fine-tuned model, a Hugging Face model or a checkpoint of
    google-research/bert.
    """

    source: Annotated[ModelSource, tyro.conf.arg(name="")]
    output: Path
    """Directory to make; it must not exist."""
    format: ModelFormat = "hf"
    """hf: Hugging Face transformers. tf1: google-research/bert. npz: arrays for numpy."""
    part: ModelPart = "model"
    """Of a run of replaced token detection: model is the discriminator,
    generator the masked language model that was trained beside it."""
