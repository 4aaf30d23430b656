"""The flags of `bert-jax fill-mask`."""

import dataclasses
from typing import Annotated

import tyro

from bert_jax.formats.model_source import ModelSource


@dataclasses.dataclass(frozen=True)
class FillMask:
    """Guess the [MASK] tokens of texts, and print the likeliest tokens with their probabilities."""

    texts: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TEXT...", help_behavior_hint="(required)"),
    ]
    """One or more texts, each with at least one [MASK]."""
    source: Annotated[ModelSource, tyro.conf.arg(name="")]
    top_k: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Number of tokens to show for each [MASK]."""
