"""Reads and writes Hugging Face's BERT models: `config.json`, `model.safetensors`, tokenizer files.

Their linear layers store kernels as [out, in] where flax has [in, out], with the heads' axes joined.
Apart from that only names differ (transformers/models/bert/modeling_bert.py).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bert_jax.config import Activation, ModelConfig
from bert_jax.finetuning_config import TransformersHead
from bert_jax.formats.configuration import SIZES, make_model_config
from bert_jax.formats.google_tf1 import CONFIG_FILE as GOOGLE_CONFIG_FILE
from bert_jax.formats.huggingface_tokenizer import read_tokenizer, special_id, write_tokenizer
from bert_jax.formats.model_card import model_card
from bert_jax.formats.pretrained import PretrainedModel, TaskHead, objective_of
from bert_jax.formats.tensors import (
    Entry,
    Parts,
    Tensors,
    expand,
    from_tensors,
    left_out,
    rows_of_parts,
    to_tensors,
)
from bert_jax.model.pretraining import abstract_params
from bert_jax.objectives import objective_name
from data_pipeline.atomic import write_json
from data_pipeline.corpus.vocabulary_file import PAD
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import read_object

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_TORCH_FILE = "pytorch_model.bin"

_SIZES = {**SIZES, "layer_norm_epsilon": "layer_norm_eps"}

# "gelu_new" is the same formula as "gelu_pytorch_tanh", written out in Python.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_exact",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}

_TABLE = (
    ("encoder/embeddings/word_embeddings/embedding", "bert.embeddings.word_embeddings.weight"),
    ("encoder/embeddings/segment_embeddings/embedding", "bert.embeddings.token_type_embeddings.weight"),
    ("encoder/layer_{}/attention/query/kernel", "bert.encoder.layer.{}.attention.self.query.weight"),
    ("encoder/layer_{}/attention/query/bias", "bert.encoder.layer.{}.attention.self.query.bias"),
    ("encoder/layer_{}/attention/key/kernel", "bert.encoder.layer.{}.attention.self.key.weight"),
    ("encoder/layer_{}/attention/key/bias", "bert.encoder.layer.{}.attention.self.key.bias"),
    ("encoder/layer_{}/attention/value/kernel", "bert.encoder.layer.{}.attention.self.value.weight"),
    ("encoder/layer_{}/attention/value/bias", "bert.encoder.layer.{}.attention.self.value.bias"),
    ("encoder/layer_{}/attention/output/kernel", "bert.encoder.layer.{}.attention.output.dense.weight"),
    ("encoder/layer_{}/attention/output/bias", "bert.encoder.layer.{}.attention.output.dense.bias"),
    ("pooler/dense/kernel", "bert.pooler.dense.weight"),
    ("pooler/dense/bias", "bert.pooler.dense.bias"),
    ("language_model/dense/kernel", "cls.predictions.transform.dense.weight"),
    ("language_model/dense/bias", "cls.predictions.transform.dense.bias"),
    ("language_model/layer_norm/scale", "cls.predictions.transform.LayerNorm.weight"),
    ("language_model/layer_norm/bias", "cls.predictions.transform.LayerNorm.bias"),
    ("language_model/bias", "cls.predictions.bias"),
    ("next_sentence/dense/kernel", "cls.seq_relationship.weight"),
    ("next_sentence/dense/bias", "cls.seq_relationship.bias"),
)
_PARTS: Parts = {
    "positions": {
        "learnt": (
            (
                "encoder/embeddings/position_embeddings/embedding",
                "bert.embeddings.position_embeddings.weight",
            ),
        ),
    },
    "normalization": {
        "layer_norm": (
            ("encoder/embeddings/layer_norm/scale", "bert.embeddings.LayerNorm.weight"),
            ("encoder/embeddings/layer_norm/bias", "bert.embeddings.LayerNorm.bias"),
            (
                "encoder/layer_{}/attention_layer_norm/scale",
                "bert.encoder.layer.{}.attention.output.LayerNorm.weight",
            ),
            (
                "encoder/layer_{}/attention_layer_norm/bias",
                "bert.encoder.layer.{}.attention.output.LayerNorm.bias",
            ),
            ("encoder/layer_{}/output_layer_norm/scale", "bert.encoder.layer.{}.output.LayerNorm.weight"),
            ("encoder/layer_{}/output_layer_norm/bias", "bert.encoder.layer.{}.output.LayerNorm.bias"),
        ),
    },
    "normalization_place": {"post": ()},
    "embedding_normalization": {"same": ()},
    "query_key_normalization": {"none": ()},
    "biases": {"all": ()},
    "attention_window": {None: ()},
    "embedding_size": {None: ()},
    "layer_groups": {None: ()},
    "feed_forward": {
        "dense": (
            ("encoder/layer_{}/intermediate/kernel", "bert.encoder.layer.{}.intermediate.dense.weight"),
            ("encoder/layer_{}/intermediate/bias", "bert.encoder.layer.{}.intermediate.dense.bias"),
            ("encoder/layer_{}/output/kernel", "bert.encoder.layer.{}.output.dense.weight"),
            ("encoder/layer_{}/output/bias", "bert.encoder.layer.{}.output.dense.bias"),
        ),
    },
}
_WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_DECODER = "cls.predictions.decoder.weight"
_BIAS, _DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
# Tensors that are not parameters: constants, and the second names of the tied decoder's weight and bias.
_NO_PARAMETERS = (
    "bert.embeddings.position_ids",
    "bert.embeddings.token_type_ids",
    _DECODER_BIAS,
    _DECODER,
)


def entries(model: ModelConfig) -> list[Entry]:
    """Our path and Hugging Face's name of each array."""
    return [
        Entry(path, name, "out_in" if path[-1] == "kernel" else "in_out")
        for path, name in expand((*_TABLE, *rows_of_parts(_PARTS, model, "transformers")), model.num_layers)
    ]


def recognises(directory: Path) -> bool:
    """Whether a directory is meant to hold such a model; Google's may have a `config.json` too."""
    if not (directory / CONFIG_FILE).is_file():
        return False
    return bool(_weight_files(directory)) or not (directory / GOOGLE_CONFIG_FILE).is_file()


def read(directory: Path) -> PretrainedModel:
    """Reads a model of any of transformers' `Bert...` classes.

    Raises:
      UserError: a file is missing or damaged; the architecture is another one; the weights are in
        `pytorch_model.bin` and torch is not installed.
    """
    config = from_config(read_object(directory / CONFIG_FILE), directory / CONFIG_FILE)
    files = _weight_files(directory)
    if not files:
        looked = ", ".join(f"{name}, {name}.index.json" for name in (WEIGHTS_FILE, _TORCH_FILE))
        raise UserError(f"{directory} has no weights; looked for {looked}")
    tokenizer, vocabulary = read_tokenizer(directory)
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        tensors |= _load(file)
    tensors = _modern_names(tensors, directory)
    table = entries(config)
    params = from_tensors(tensors, table, abstract_params(config), "bert.", directory)
    return PretrainedModel(
        name=directory.resolve().name,
        config=config,
        params=params,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        objective=objective_of(config, params),
        left_out=left_out(tensors, table),
    )


def write(directory: Path, model: PretrainedModel) -> None:
    """Writes a model that transformers loads into an existing directory: weights, config, tokenizer, card."""
    write_tokenizer(directory, model.tokenizer, model.vocabulary, model.config.max_position_embeddings)
    config = to_config(model, special_id(model.tokenizer, PAD))
    write_json(directory / CONFIG_FILE, config)
    tensors = to_tensors(model.params, entries(model.config)) | _head_tensors(model)
    if transformers_class(model) == "BertModel":
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    # transformers refuses files whose metadata does not name a framework.
    save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    (directory / "README.md").write_text(model_card(model, transformers_class(model)), encoding="utf-8")


def transformers_class(model: PretrainedModel) -> str:
    """Name of the transformers class that has the same heads as a model.

    Raises:
      UserError: transformers has no class for the model.
    """
    if model.head is not None:
        return _transformers_head(model, model.head).class_name
    if model.objective is None:
        return "BertForNextSentencePrediction" if "next_sentence" in model.params else "BertModel"
    if model.objective.transformers_class is None:
        raise UserError(
            f"transformers has no class for {model.name}, trained by objective "
            f"{objective_name(model.objective)}; write --format npz"
        )
    return model.objective.transformers_class


def to_config(model: PretrainedModel, pad_token_id: int) -> dict[str, Any]:
    """The content of `config.json`: a transformers `BertConfig`."""
    config = model.config
    activation = next(theirs for theirs, ours in _ACTIVATIONS.items() if ours == config.activation)
    return {
        "architectures": [transformers_class(model)],
        "model_type": "bert",
        **{theirs: getattr(config, ours) for ours, theirs in _SIZES.items()},
        "hidden_act": activation,
        "is_decoder": config.attention == "causal",
        "pad_token_id": pad_token_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **_task_settings(model),
    }


def _transformers_head(model: PretrainedModel, head: TaskHead) -> TransformersHead:
    if not head.features.are_plain(model.config.num_layers):
        raise UserError(
            f"{model.name} was fine-tuned with --features.*, and transformers' classes see the last layer "
            "alone; bert-jax predict applies it"
        )
    if head.exports_as is None or (model.config.attention == "causal" and "pooler" in model.params):
        raise UserError(
            f"transformers has no class for {model.name} ({head.kind}, {model.config.attention} attention); "
            "bert-jax predict applies it"
        )
    return head.exports_as


def _task_settings(model: PretrainedModel) -> dict[str, Any]:
    """The settings of `config.json` that describe a fine-tuned model's outputs."""
    if model.head is None:
        return {}
    problem_type = _transformers_head(model, model.head).problem_type
    labels = ("value",) if problem_type == "regression" else model.head.labels
    named = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    return (named if labels else {}) | ({"problem_type": problem_type} if problem_type else {})


def _head_tensors(model: PretrainedModel) -> dict[str, np.ndarray]:
    """The new layer of a fine-tuned model, in torch's layout."""
    if model.head is None:
        return {}
    name, layer = _transformers_head(model, model.head).layer, model.head.params["classifier"]
    kernel = np.ascontiguousarray(np.asarray(layer["kernel"]).T)
    return {f"{name}.weight": kernel, f"{name}.bias": np.asarray(layer["bias"])}


def from_config(fields: Mapping[str, Any], path: Path) -> ModelConfig:
    """The inverse of `to_config`, computing in float32.

    Missing settings take transformers' defaults, which are those of the paper's BASE and also ours.

    Raises:
      UserError: the model is not a BERT, or has a setting that this project does not support.
    """
    settings = {
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "add_cross_attention": False,
        "hidden_act": "gelu",
        "is_decoder": False,
        **fields,
    }
    for name, valid in (
        ("model_type", ("bert",)),
        ("position_embedding_type", ("absolute",)),
        ("add_cross_attention", (False,)),
        ("hidden_act", tuple(_ACTIVATIONS)),
        ("is_decoder", (False, True)),
    ):
        if settings[name] not in valid:
            known = ", ".join(map(repr, valid))
            raise UserError(f"{path} has {name} {settings[name]!r}; valid: {known}")
    return dataclasses.replace(
        make_model_config(settings, _SIZES, path),
        activation=_ACTIVATIONS[settings["hidden_act"]],
        attention="causal" if settings["is_decoder"] else "bidirectional",
    )


def _weight_files(directory: Path) -> list[Path]:
    """The files that hold the weights, safetensors rather than torch's; empty if there are none."""
    for name in (WEIGHTS_FILE, _TORCH_FILE):
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            files = read_object(index).get("weight_map")
            if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
                raise UserError(f"{index} has no weight_map from tensors to the names of their files")
            return sorted({directory / file for file in files.values()})
    return []


def _load(file: Path) -> dict[str, np.ndarray]:
    if file.suffix == ".bin":
        return _load_torch(file)
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise bad_input(error, file, f"{file} cannot be read: {error}") from None
    except (AttributeError, KeyError) as error:  # how the library tells that numpy lacks a dtype
        raise UserError(f"{file} has a dtype that numpy lacks ({error}); save the model in float32") from None


def _load_torch(file: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            f"{file} is in torch's format and torch is not installed: pip install torch, "
            f"or save the model as {WEIGHTS_FILE}"
        ) from None
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of many types; torch's own words advise to run the code in the file
        raise bad_input(
            error,
            file,
            f"{file} cannot be read: it was truncated, or is not what torch.save(model.state_dict(), FILE) "
            f"writes; save the model again, best as {WEIGHTS_FILE}",
        ) from None
    if not isinstance(tensors, Mapping):
        raise UserError(f"{file} holds a {type(tensors).__name__}; it must be a model's state_dict")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise UserError(
                f"{file} holds {name!r}, which is no tensor; it must be a model's state_dict alone, as "
                f"torch.save(model.state_dict(), FILE) writes it"
            )
        odd = tensor.is_meta or tensor.is_complex() or tensor.is_quantized or tensor.is_nested
        if odd or tensor.layout is not torch.strided:
            raise UserError(
                f"{file}: {name} is sparse, nested, quantized, complex or without values; "
                f"it must be a dense tensor of real numbers"
            )
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).detach().numpy()
        for name, tensor in tensors.items()
    }


def _modern_names(tensors: Tensors, directory: Path) -> dict[str, np.ndarray]:
    """The tensors under the names of a current `BertForPreTraining`, without those that are not parameters.

    Raises:
      UserError: the model's output embeddings are not its word embeddings.
    """
    names = {
        name: name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        for name in tensors
    }
    if _WORD_EMBEDDINGS.removeprefix("bert.") in tensors:  # a BertModel
        names = {
            old: f"bert.{new}" if new.startswith(("embeddings.", "encoder.", "pooler.")) else new
            for old, new in names.items()
        }
    renamed = {names[old]: tensor for old, tensor in tensors.items()}
    if _DECODER in renamed and not np.array_equal(renamed[_DECODER], renamed.get(_WORD_EMBEDDINGS, [])):
        raise UserError(f"{directory} has output embeddings of their own; only tied ones are supported")
    if _DECODER_BIAS in renamed:  # the same array; some files have it under this name only
        renamed.setdefault(_BIAS, renamed[_DECODER_BIAS])
    return {name: tensor for name, tensor in renamed.items() if name not in _NO_PARAMETERS}
