"""Opens the model that flags name."""

import sys

from bert_jax.formats.model_source import ModelSource
from bert_jax.formats.open_model import open_model
from bert_jax.formats.pretrained import PretrainedModel


def open_source(source: ModelSource) -> PretrainedModel:
    """Reads the model; prints a note if its GELU is a guess. Raises UserError as `open_model` does."""
    model = open_model(source.model, source.step, source.activation)
    note_assumed(model)
    return model


def note_assumed(model: PretrainedModel) -> None:
    """Prints a note on stderr if a model's GELU is a guess."""
    if model.has_assumed_activation:
        print(
            f"note: {model.name} does not say which GELU it was trained with; {model.config.activation} is "
            "assumed, but Google's models of 2018 want --activation gelu_exact",
            file=sys.stderr,
        )
