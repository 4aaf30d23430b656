"""Flags that name a model, the same for every command that reads one."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bert_jax.config import Activation

if TYPE_CHECKING:
    from bert_jax.formats.pretrained import PretrainedModel


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model's folder, and how to read it."""

    model: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the model: a run, an export, a fine-tuned model, a Hugging Face BERT or Google's."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Step of the checkpoint of a run; the newest by default."""
    activation: Activation | None = None
    """Variant of GELU, if the model's folder does not name it, or names the wrong one."""

    def open(self) -> "PretrainedModel":
        """Reads the model; prints a note if its GELU is a guess. Raises UserError as `open_model` does."""
        from bert_jax.formats.open_model import open_model

        model = open_model(self.model, self.step, self.activation)
        note_assumed(model)
        return model


def note_assumed(model: "PretrainedModel") -> None:
    """Prints a note on stderr if a model's GELU is a guess."""
    if model.has_assumed_activation:
        print(
            f"note: {model.name} does not say which GELU it was trained with; {model.config.activation} is "
            "assumed, but Google's models of 2018 want --activation gelu_exact",
            file=sys.stderr,
        )
