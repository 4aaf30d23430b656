"""Flags that name a model, the same for every command that reads one."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.model_config import Activation


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model's directory, and how to read it."""

    model: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Directory of the model: a run, an export, a fine-tuned model, one of Hugging Face's, or
    Google's."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint of a run; the newest by default."""
    activation: Activation | None = None
    """Activation of feed-forward layers and heads, if the model's directory does not name it, or names the
    wrong one."""
