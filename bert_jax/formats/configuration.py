"""The JSON files that describe a model, and the settings that Google's and Hugging Face's share."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import ModelConfig
from data_pipeline.errors import UserError, bad_input

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
"""Our names of settings and google-research/bert's, which Hugging Face took over."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
      UserError: there is no such file, or something else in it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise bad_input(error, path, f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object")
    return content


def make_model_config(fields: Mapping[str, Any], names: Mapping[str, str], path: Path) -> ModelConfig:
    """A configuration from those fields of a JSON file that it has, by a table like `SIZES`.

    Raises:
      UserError: a value is impossible.
    """
    try:
        return ModelConfig(**{ours: fields[theirs] for ours, theirs in names.items() if theirs in fields})
    except TypeError:
        raise UserError(f"{path} has a setting that is no number") from None


def with_objective(config: ModelConfig, params: Mapping[str, Any]) -> ModelConfig:
    """A bidirectional model's configuration with the objective that its heads were trained for."""
    return dataclasses.replace(config, objective="mlm_nsp" if "next_sentence" in params else "mlm")
