"""Parameters under this project's own names in one `model.npz`, for programs that have only numpy."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.formats.families import FAMILIES
from bert_jax.formats.huggingface_tokenizer import read_tokenizer, write_tokenizer
from bert_jax.formats.pretrained import PretrainedModel, parameter_shapes
from bert_jax.formats.tensors import Entry, from_tensors, left_out, to_tensors
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import Objective
from bert_jax.objectives.task import PretrainingTask
from bert_jax.workdir.config_text import from_json, to_json
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import read_object

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.npz"
_FORMAT = "bert-jax npz"


def entries(params: Mapping[str, Any]) -> list[Entry]:
    """Each array's path and its name, the path joined by "/". Kernels are [in, out], heads joined."""
    return [Entry(path, "/".join(path), "in_out") for path in flatten_dict(params)]


def _shapes(config: ModelConfig, objective: Objective | None) -> Mapping[str, Any]:
    """Shapes of the parameters, by their paths."""
    return PretrainingTask(objective, config).abstract_params() if objective else parameter_shapes(config)


def recognises(directory: Path) -> bool:
    """Whether a directory is meant to be in this format."""
    file = directory / CONFIG_FILE
    return file.is_file() and read_object(file).get("format") == _FORMAT


def read(directory: Path) -> PretrainedModel:
    """Reads what `write` wrote. Raises UserError if a file is missing or damaged."""
    try:
        fields = read_object(directory / CONFIG_FILE)
        config = from_json(ModelConfig, fields["model"])
        objective = None
        if fields["objective"] is not None:
            objective = from_json(Objective, fields["objective"])  # type: ignore[type-abstract]
        family = fields.get("family")
        if family is not None and family not in tuple(FAMILIES):
            raise UserError(f"family is {family!r}; valid: {', '.join(FAMILIES)}")
    except (KeyError, TypeError) as error:
        raise UserError(f"{directory / CONFIG_FILE} is not of this format: {error!r}") from None
    except UserError as error:
        raise UserError(f"{directory / CONFIG_FILE}: {error}") from None
    weights = directory / WEIGHTS_FILE
    try:
        # np.load leaves a damaged file open if it opened the file itself.
        with weights.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            tensors = dict(file)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:  # TypeError: an .npy
        raise bad_input(error, weights, f"{weights} cannot be read: {error}") from None
    tokenizer, vocabulary = read_tokenizer(directory)
    shapes = _shapes(config, objective)
    table = entries(shapes)
    return PretrainedModel(
        name=directory.resolve().name,
        config=config,
        params=from_tensors(tensors, table, shapes, "encoder/", directory),
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        family=family,
        objective=objective,
        left_out=left_out(tensors, table),
    )


def write(directory: Path, model: PretrainedModel) -> None:
    """Writes a model into an existing directory."""
    config = {
        "format": _FORMAT,
        "model": to_json(model.config),
        "objective": to_json(model.objective),
        "family": model.family,
    }
    write_json(directory / CONFIG_FILE, config)
    table = entries(_shapes(model.config, model.objective))
    np.savez(directory / WEIGHTS_FILE, allow_pickle=False, **to_tensors(model.params, table))
    write_tokenizer(directory, model.tokenizer, model.vocabulary, model.config)
