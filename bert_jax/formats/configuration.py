"""The settings of a model by the names that Google and Hugging Face share."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax.model_config import MODEL_SIZES, OPTIONAL_SIZES, ModelConfig
from data_pipeline.checks import check_positive
from data_pipeline.errors import UserError

SIZES = {
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
}
"""Setting names: ours, and google-research/bert's, which Hugging Face adopted."""

# Not compared: how a model computes, which no file describes; pooler, width of the embeddings and groups,
# which the tables of arrays decide; what `of_layer` resolves for each layer.
_NOT_COMPARED = ("dtype", "attention_kernel", "pooler", "rotary_base_local", "global_every", *OPTIONAL_SIZES)


def check_told(model: ModelConfig, told: ModelConfig, format_name: str) -> None:
    """Raises UserError if a file of settings describes another encoder than the one that it was written for.

    Args:
      model: that is written.
      told: what reading the file gives.
      format_name: whose file it is, for the message.
    """
    left_out = {*_NOT_COMPARED} if model.positions == "rotary" else {*_NOT_COMPARED, "rotary_base"}
    names = [field.name for field in dataclasses.fields(ModelConfig) if field.name not in left_out]
    for number in range(model.num_layers):
        ours, theirs = model.of_layer(number), told.of_layer(number)
        for name in names:
            if getattr(ours, name) != getattr(theirs, name):
                raise UserError(
                    f"{format_name} has no model with {name} {getattr(ours, name)}; "
                    f"`bert-jax convert --format npz` writes it"
                )


def make_model_config(
    fields: Mapping[str, Any],
    names: Mapping[str, str],
    path: Path,
    further: Mapping[str, Any] = MappingProxyType({}),
) -> ModelConfig:
    """The model configuration that a JSON file describes; missing fields keep our defaults.

    Args:
      fields: content of the file.
      names: our names and the file's, like `SIZES`.
      path: named in the error.
      further: settings by our names that are not in the file as they are.

    Raises:
      UserError: a value is impossible.
    """
    for ours, most in MODEL_SIZES.items():
        if names.get(ours) in fields:
            check_positive(f"{path}: {names[ours]}", fields[names[ours]], most)
    given = {ours: fields[theirs] for ours, theirs in names.items() if theirs in fields}
    for ours, value in given.items():
        if not isinstance(value, int | float):
            raise UserError(f"{path} has {names[ours]} {value!r}; it must be a number")
    try:
        return ModelConfig(**{**given, **further})
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
