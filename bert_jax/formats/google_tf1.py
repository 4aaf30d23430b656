"""Reads and writes google-research/bert's checkpoints: `bert_config.json`, `vocab.txt`, `bert_model.ckpt`.

TensorFlow reads and writes the checkpoint in a separate process, so this package never imports it.
Settings that Google's configuration has no field for are stored in it under "bert_jax", which
Google's programs ignore.
"""

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from bert_jax.exit_status import MAY_PASS
from bert_jax.formats.configuration import SIZES, check_told, make_model_config
from bert_jax.formats.families import bert
from bert_jax.formats.families.family import renamed, renamed_parts
from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.formats.pretrained import PretrainedModel, objective_of
from bert_jax.formats.tensors import (
    Entry,
    Parts,
    expand,
    from_tensors,
    left_out,
    rows_of_parts,
    save_tensors,
    to_tensors,
)
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLM
from bert_jax.objectives.task import PretrainingTask
from data_pipeline.atomic import write_json
from data_pipeline.corpus.vocabulary_file import FILES, Vocabulary, guess_casing
from data_pipeline.errors import Unfinished, UserError
from data_pipeline.json_text import read_object

CONFIG_FILE = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"
_OURS = "bert_jax"


# Parts of names in the table of transformers' BERT -> how Google's checkpoints write them; replaced in order.
_NAMES = {
    "_embeddings.weight": "_embeddings",
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
    "predictions.bias": "predictions.output_bias",
    "seq_relationship.weight": "seq_relationship.output_weights",
    "seq_relationship.bias": "seq_relationship.output_bias",
    ".weight": ".kernel",
    ".layer.": ".layer_",
    ".": "/",
}
_TABLE = renamed((*bert.ENCODER, *bert.POOLER, *bert.HEADS), _NAMES)
_PARTS: Parts = {
    **renamed_parts(bert.PARTS, _NAMES, without=("attention",)),
    "activation": {"gelu_tanh": (), "gelu_exact": ()},
}


def entries(model: ModelConfig) -> list[Entry]:
    """Our path and Google's name of each array; of Google's kernels only next sentence's is [out, in]."""
    return [
        Entry(path, name, "out_in" if name.endswith("output_weights") else "in_out")
        for path, name in expand(
            (*_TABLE, *rows_of_parts(_PARTS, model, "google-research/bert")), model.num_layers
        )
    ]


def recognises(directory: Path) -> bool:
    """Whether a directory is meant to hold such a checkpoint."""
    return (directory / CONFIG_FILE).is_file()


def read(directory: Path) -> PretrainedModel:
    """Reads the only checkpoint in a directory, without its optimizer slots and its step.

    "gelu" is read as the tanh approximation, which google-research/bert has computed since 2019-02.

    Raises:
      UserError: a file is missing or damaged, the architecture is another one, or TensorFlow is not
        installed.
    """
    fields = read_object(directory / CONFIG_FILE)
    config = from_config(fields, directory / CONFIG_FILE)
    vocabulary = read_vocabulary(directory)
    prefix = _find_checkpoint(directory)
    with tempfile.TemporaryDirectory(prefix="bert-jax-") as scratch:
        file = Path(scratch) / "tensors.safetensors"
        _run_tensorflow("read", prefix, file)
        tensors = load_file(file)
    table = entries(config)
    shapes = PretrainingTask(MaskedLM(), config).abstract_params()
    params = from_tensors(tensors, table, shapes, "bert/", prefix)
    return PretrainedModel(
        name=directory.resolve().name,
        config=config,
        params=params,
        tokenizer=make_tokenizer(vocabulary),
        vocabulary=vocabulary,
        objective=objective_of(config, params),
        left_out=left_out(tensors, table),
        has_assumed_activation=_OURS not in fields,
    )


def write(directory: Path, model: PretrainedModel) -> None:
    """Writes a model into an existing directory, in the form that google-research/bert's programs read.

    Raises:
      UserError: the model reads in one direction, its pooler is not tanh, its tokenizer is not BERT's
        WordPiece, or it has a head of another kind, none of which they support; or TensorFlow is not
        installed.
    """
    if model.config.attention != "bidirectional":
        others = "hf or npz" if model.config.attention == "causal" else "npz"
        raise UserError(
            f"google-research/bert has no {model.config.attention} attention; write --format {others}"
        )
    if model.config.pooler != "tanh" and "pooler" in model.params:
        raise UserError(
            f"google-research/bert has no pooler {model.config.pooler}, only tanh; write --format hf or npz"
        )
    vocabulary = model.vocabulary
    if vocabulary is None or vocabulary.kind != "wordpiece":
        raise UserError(
            "google-research/bert reads only WordPiece, cased or uncased; write --format hf or npz"
        )
    table = entries(model.config)
    if foreign := sorted(set(model.params) - {entry.path[0] for entry in table}):
        raise UserError(
            f"google-research/bert has no names for {', '.join(foreign)} of {model.name}, which it has "
            "learned; write --format hf or npz"
        )
    fields = to_config(model.config, vocabulary)
    file = directory / "tensors.safetensors"
    save_tensors(to_tensors(model.params, table), file)
    _run_tensorflow("write", directory / CHECKPOINT, file)
    file.unlink()
    (directory / vocabulary.file_name).write_bytes(vocabulary.content)
    write_json(directory / CONFIG_FILE, fields)


def to_config(model: ModelConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of `bert_config.json`. Raises UserError if it cannot describe the encoder."""
    ours = {
        "activation": model.activation,
        "layer_norm_epsilon": model.layer_norm_epsilon,
        "casing": vocabulary.casing,
    }
    sizes = {theirs: getattr(model, name) for name, theirs in SIZES.items()}
    fields = {**sizes, "hidden_act": "gelu", _OURS: ours}
    check_told(model, from_config(fields, Path(CONFIG_FILE)), "google-research/bert")
    return fields


def from_config(fields: Mapping[str, Any], path: Path) -> ModelConfig:
    """The inverse of `to_config`.

    Raises:
      UserError: a setting is missing or impossible, or the activation is not GELU.
    """
    missing = sorted({*SIZES.values(), "hidden_act"} - set(fields))
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}")
    if fields["hidden_act"] != "gelu":
        raise UserError(f"{path} has hidden_act {fields['hidden_act']!r}; valid: 'gelu'")
    model = make_model_config(fields, SIZES, path)
    if _OURS not in fields:
        return model
    ours = {name: _our_setting(fields, name, path) for name in ("activation", "layer_norm_epsilon")}
    return dataclasses.replace(model, **ours)


def _our_setting(fields: Mapping[str, Any], name: str, path: Path) -> Any:
    """A setting that `to_config` stored. Raises UserError if the entry is of another form."""
    try:
        return fields[_OURS][name]
    except (KeyError, TypeError):
        raise UserError(f"{path} has an entry {_OURS!r} that `bert-jax convert` did not write") from None


def read_vocabulary(directory: Path) -> Vocabulary:
    """Reads the vocabulary alone. Raises UserError if a file is missing or damaged."""
    config = directory / CONFIG_FILE
    fields = read_object(config)
    file = directory / FILES["wordpiece"]
    if not file.is_file():
        raise UserError(f"{directory} has no {file.name}; copy the one that the model was trained with there")
    content = file.read_bytes()
    casing = _our_setting(fields, "casing", config) if _OURS in fields else guess_casing(content, file)
    return Vocabulary("wordpiece", casing, content)


def _find_checkpoint(directory: Path) -> Path:
    found = sorted(path.with_suffix("") for path in directory.glob("*.index"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(f"{directory} must hold one checkpoint, NAME.index and NAME.data-*; found: {names}")
    return found[0]


def _run_tensorflow(action: str, prefix: Path, file: Path) -> None:
    script = "data_pipeline.tf1_checkpoint"
    command = [sys.executable, "-P", "-m", script, action, str(prefix), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        kind = Unfinished if done.returncode == MAY_PASS else UserError
        raise kind((done.stderr.strip().splitlines() or [f"{prefix}: TensorFlow failed"])[-1])
