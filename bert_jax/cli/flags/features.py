"""The flags of `bert-jax features`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.formats.model_source import ModelSource
from bert_jax.names import Pooling


@dataclasses.dataclass(frozen=True)
class Features:
    """Write the hidden states of some layers for each line of a text file.

    A tab in a line separates two texts, the segments A and B.
    """

    source: Annotated[ModelSource, tyro.conf.arg(name="")]
    input: Path
    """Text file, one text per line."""
    output: Path
    """File to make: .parquet is written while texts are read, .npz is collected in memory first."""
    layers: str = "-1"
    """Layers, separated by commas, as in --layers=-1,-2: 0 is the embedding output, -1 the last layer."""
    pooling: Pooling = "none"
    """none: a vector for each token. mean: their mean. cls: that of [CLS]."""
