"""Reads and writes Hugging Face's BERT models: `config.json`, `model.safetensors`, tokenizer files.

Their linear layers store kernels as [out, in] where flax has [in, out], with the heads' axes joined.
Apart from that only names differ (transformers/models/bert/modeling_bert.py).
"""

import dataclasses
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bert_jax.config import Activation, ModelConfig
from bert_jax.formats.configuration import SIZES, make_model_config, read_json, with_objective
from bert_jax.formats.google_tf1 import CONFIG_FILE as GOOGLE_CONFIG_FILE
from bert_jax.formats.huggingface_tokenizer import read_tokenizer, special_id, write_tokenizer
from bert_jax.formats.model_card import model_card
from bert_jax.formats.pretrained import PretrainedModel, TaskHead
from bert_jax.formats.tensors import Entry, Tensors, expand, from_tensors, left_out, to_tensors
from data_pipeline.atomic import write_json
from data_pipeline.errors import UserError, bad_input
from data_pipeline.vocabulary_file import PAD

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_TORCH_FILE = "pytorch_model.bin"

_SIZES = {**SIZES, "layer_norm_epsilon": "layer_norm_eps"}

# "gelu_new" is the same formula as "gelu_pytorch_tanh", written out in Python.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_exact",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}

_TABLE = (
    ("encoder/embeddings/word_embeddings/embedding", "bert.embeddings.word_embeddings.weight"),
    ("encoder/embeddings/position_embeddings/embedding", "bert.embeddings.position_embeddings.weight"),
    ("encoder/embeddings/segment_embeddings/embedding", "bert.embeddings.token_type_embeddings.weight"),
    ("encoder/embeddings/layer_norm/scale", "bert.embeddings.LayerNorm.weight"),
    ("encoder/embeddings/layer_norm/bias", "bert.embeddings.LayerNorm.bias"),
    ("encoder/layer_{}/attention/query/kernel", "bert.encoder.layer.{}.attention.self.query.weight"),
    ("encoder/layer_{}/attention/query/bias", "bert.encoder.layer.{}.attention.self.query.bias"),
    ("encoder/layer_{}/attention/key/kernel", "bert.encoder.layer.{}.attention.self.key.weight"),
    ("encoder/layer_{}/attention/key/bias", "bert.encoder.layer.{}.attention.self.key.bias"),
    ("encoder/layer_{}/attention/value/kernel", "bert.encoder.layer.{}.attention.self.value.weight"),
    ("encoder/layer_{}/attention/value/bias", "bert.encoder.layer.{}.attention.self.value.bias"),
    ("encoder/layer_{}/attention/output/kernel", "bert.encoder.layer.{}.attention.output.dense.weight"),
    ("encoder/layer_{}/attention/output/bias", "bert.encoder.layer.{}.attention.output.dense.bias"),
    (
        "encoder/layer_{}/attention_layer_norm/scale",
        "bert.encoder.layer.{}.attention.output.LayerNorm.weight",
    ),
    ("encoder/layer_{}/attention_layer_norm/bias", "bert.encoder.layer.{}.attention.output.LayerNorm.bias"),
    ("encoder/layer_{}/intermediate/kernel", "bert.encoder.layer.{}.intermediate.dense.weight"),
    ("encoder/layer_{}/intermediate/bias", "bert.encoder.layer.{}.intermediate.dense.bias"),
    ("encoder/layer_{}/output/kernel", "bert.encoder.layer.{}.output.dense.weight"),
    ("encoder/layer_{}/output/bias", "bert.encoder.layer.{}.output.dense.bias"),
    ("encoder/layer_{}/output_layer_norm/scale", "bert.encoder.layer.{}.output.LayerNorm.weight"),
    ("encoder/layer_{}/output_layer_norm/bias", "bert.encoder.layer.{}.output.LayerNorm.bias"),
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
# Kind of head: the transformers class, and the name that it gives the new layer.
_TASK_CLASSES = {
    "classification": ("BertForSequenceClassification", "classifier"),
    "regression": ("BertForSequenceClassification", "classifier"),
    "choice": ("BertForMultipleChoice", "classifier"),
    "tagging": ("BertForTokenClassification", "classifier"),
    "spans": ("BertForQuestionAnswering", "qa_outputs"),
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


def entries(num_layers: int) -> list[Entry]:
    """Our path and Hugging Face's name of each array."""
    return [
        Entry(path, name, "out_in" if path[-1] == "kernel" else "in_out")
        for path, name in expand(_TABLE, num_layers)
    ]


def recognises(directory: Path) -> bool:
    """Whether a folder is meant to hold such a model; Google's folders may have a `config.json` too."""
    if not (directory / CONFIG_FILE).is_file():
        return False
    return bool(_weight_files(directory)) or not (directory / GOOGLE_CONFIG_FILE).is_file()


def read(directory: Path) -> PretrainedModel:
    """Reads a model of any of transformers' `Bert...` classes.

    Raises:
      UserError: a file is missing or damaged; the architecture is another one; the weights are in
        `pytorch_model.bin` and torch is not installed.
    """
    config = from_config(read_json(directory / CONFIG_FILE), directory / CONFIG_FILE)
    files = _weight_files(directory)
    if not files:
        looked = ", ".join(f"{name}, {name}.index.json" for name in (WEIGHTS_FILE, _TORCH_FILE))
        raise UserError(f"{directory} has no weights; looked for {looked}")
    tokenizer, vocabulary = read_tokenizer(directory)
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        tensors |= _load(file)
    tensors = _modern_names(tensors, directory)
    table = entries(config.num_layers)
    params = from_tensors(tensors, table, config, "bert.", directory)
    return PretrainedModel(
        name=directory.resolve().name,
        config=config if config.attention == "causal" else with_objective(config, params),
        params=params,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        left_out=left_out(tensors, table),
    )


def write(folder: Path, model: PretrainedModel) -> None:
    """Writes a model that transformers loads into an existing folder: weights, config, tokenizer, card."""
    write_tokenizer(folder, model.tokenizer, model.vocabulary, model.config.max_position_embeddings)
    config = to_config(model, special_id(model.tokenizer, PAD))
    write_json(folder / CONFIG_FILE, config)
    tensors = to_tensors(model.params, entries(model.config.num_layers)) | _head_tensors(model)
    if transformers_class(model) == "BertModel":
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    # transformers refuses files whose metadata does not name a framework.
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / "README.md").write_text(model_card(model, transformers_class(model)), encoding="utf-8")


def transformers_class(model: PretrainedModel) -> str:
    """Name of the transformers class that has the same heads as a model.

    Raises:
      UserError: the model is fine-tuned and transformers has no class for it.
    """
    if model.head is not None:
        return _task_class(model, model.head)
    if "language_model" not in model.params:
        return "BertForNextSentencePrediction" if "next_sentence" in model.params else "BertModel"
    if model.config.attention == "causal":
        return "BertLMHeadModel"
    return "BertForPreTraining" if "next_sentence" in model.params else "BertForMaskedLM"


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


def _task_class(model: PretrainedModel, head: TaskHead) -> str:
    if not head.features.are_plain(model.config.num_layers):
        raise UserError(
            f"{model.name} was fine-tuned with --features.*, and transformers' classes see the last layer "
            "alone; bert-jax predict applies it"
        )
    if head.kind not in _TASK_CLASSES or (model.config.attention == "causal" and "pooler" in model.params):
        raise UserError(
            f"transformers has no class for {model.name} ({head.kind}, {model.config.attention} attention); "
            f"it has for {', '.join(_TASK_CLASSES)} with bidirectional attention"
        )
    return _TASK_CLASSES[head.kind][0]


def _task_settings(model: PretrainedModel) -> dict[str, Any]:
    """The settings of `config.json` that describe a fine-tuned model's labels."""
    if model.head is None or model.head.kind not in ("classification", "regression", "tagging"):
        return {}
    labels = model.head.labels or ("value",)
    settings = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    is_number = model.head.kind == "regression"
    return settings | ({"problem_type": "regression"} if is_number else {})


def _head_tensors(model: PretrainedModel) -> dict[str, np.ndarray]:
    """The new layer of a fine-tuned model, in torch's layout."""
    if model.head is None:
        return {}
    name = _TASK_CLASSES[model.head.kind][1]
    kernel = np.ascontiguousarray(np.asarray(model.head.params["kernel"]).T)
    return {f"{name}.weight": kernel, f"{name}.bias": np.asarray(model.head.params["bias"])}


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
    ):
        if settings[name] not in valid:
            known = ", ".join(map(repr, valid))
            raise UserError(f"{path} has {name} {settings[name]!r}; valid: {known}")
    return dataclasses.replace(
        make_model_config(settings, _SIZES, path),
        activation=_ACTIVATIONS[settings["hidden_act"]],
        objective="ltr" if settings["is_decoder"] else "mlm_nsp",
    )


def _weight_files(directory: Path) -> list[Path]:
    """The files that hold the weights, safetensors rather than torch's; empty if there are none."""
    for name in (WEIGHTS_FILE, _TORCH_FILE):
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            parts = read_json(index)
            if not isinstance(parts.get("weight_map"), dict):
                raise UserError(f"{index} has no weight_map, so it does not say which files belong together")
            return sorted({directory / part for part in parts["weight_map"].values()})
    return []


def _load(file: Path) -> dict[str, np.ndarray]:
    try:
        return _load_torch(file) if file.suffix == ".bin" else load_file(file)
    except (OSError, SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise bad_input(error, file, f"{file} cannot be read: {reason}") from None


def _load_torch(file: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            f"{file} is in torch's format and torch is not installed: pip install torch, "
            f"or save the model as {WEIGHTS_FILE}"
        ) from None
    tensors = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(tensors, Mapping):
        raise UserError(f"{file} holds a {type(tensors).__name__}; it must be a model's state_dict")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise UserError(
                f"{file} holds {name!r}, which is no tensor; it must be a model's state_dict alone, as "
                f"torch.save(model.state_dict(), FILE) writes it"
            )
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}


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
