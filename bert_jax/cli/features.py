"""`bert-jax features --model DIR --input FILE --output FILE`: hidden states of texts, in a file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.cli.output_folder import folder_of
from bert_jax.inference.model_source import ModelSource
from bert_jax.names import Pooling
from data_pipeline.errors import UserError


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


def run(args: Features) -> None:
    """Writes the file, then prints how many texts were cut."""
    try:
        layers = tuple(int(number) for number in args.layers.split(","))
    except ValueError:
        raise UserError(f"--layers is {args.layers!r}; write numbers with commas: --layers=-1,-2") from None
    if not args.input.is_file():
        raise UserError(f"{args.input} is not a file; --input takes a text file, one text per line")
    from bert_jax.inference.bert import Bert
    from bert_jax.inference.feature_files import write_features

    model = Bert(args.source.open())
    with folder_of(args.output):
        counts = write_features(model, args.input, layers, args.pooling, args.output)
    if counts.cut:
        longest = model.pretrained.config.max_position_embeddings
        print(f"warning: {counts.cut} of {counts.texts} texts were cut to {longest} tokens")
    print(f"wrote {args.output}: layers {args.layers} of {counts.texts} texts")
