"""Hugging Face's names and layout of a BERT, both ways: one table, `config.json` and tensors.

Their linear layers keep [out, in] where flax keeps [in, out], and join the heads' axes; nothing
else differs but names (transformers/models/bert/modeling_bert.py).
"""

import functools
from collections.abc import Container, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config import Activation, ModelConfig
from bert_jax.model.pretraining import BertForPreTraining
from data_pipeline.errors import UserError

Tensors = dict[str, np.ndarray]
Params = Mapping[str, Any]
Path = tuple[str, ...]

# A module of ours and theirs. The tied decoder is no module of its own on either side.
_EMBEDDINGS = (
    ("encoder/embeddings/word_embeddings", "bert.embeddings.word_embeddings"),
    ("encoder/embeddings/position_embeddings", "bert.embeddings.position_embeddings"),
    ("encoder/embeddings/segment_embeddings", "bert.embeddings.token_type_embeddings"),
    ("encoder/embeddings/layer_norm", "bert.embeddings.LayerNorm"),
)
_LAYER = (
    ("attention/query", "attention.self.query"),
    ("attention/key", "attention.self.key"),
    ("attention/value", "attention.self.value"),
    ("attention/output", "attention.output.dense"),
    ("attention_layer_norm", "attention.output.LayerNorm"),
    ("intermediate", "intermediate.dense"),
    ("output", "output.dense"),
    ("output_layer_norm", "output.LayerNorm"),
)
_LANGUAGE_MODEL = (
    ("language_model/dense", "cls.predictions.transform.dense"),
    ("language_model/layer_norm", "cls.predictions.transform.LayerNorm"),
    ("language_model", "cls.predictions"),
)
_NEXT_SENTENCE = (
    ("pooler/dense", "bert.pooler.dense"),
    ("next_sentence/dense", "cls.seq_relationship"),
)
_ARRAYS = {"embedding": "weight", "kernel": "weight", "scale": "weight", "bias": "bias"}

# "gelu_new" is the same formula as "gelu_pytorch_tanh", written out in Python.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_exact",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
_SIZES = {
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
}


def array_names(model: ModelConfig, arrays: Container[Path]) -> Iterator[tuple[Path, str]]:
    """Our path and Hugging Face's name of each array.

    A left-to-right model is a `BertLMHeadModel` there, with neither pooler nor next sentence head.

    Args:
      model: decides the layers and heads.
      arrays: paths of all of our arrays; tells what a module consists of.
    """
    modules = list(_EMBEDDINGS)
    for i in range(model.num_layers):
        modules += [(f"encoder/layer_{i}/{a}", f"bert.encoder.layer.{i}.{b}") for a, b in _LAYER]
    modules += _LANGUAGE_MODEL
    modules += _NEXT_SENTENCE if model.attention == "bidirectional" else ()
    for ours, theirs in modules:
        for name, their_name in _ARRAYS.items():
            path = (*ours.split("/"), name)
            if path in arrays:
                yield path, f"{theirs}.{their_name}"


def to_config(model: ModelConfig, pad_token_id: int) -> dict[str, Any]:
    """The content of `config.json`: a transformers `BertConfig`."""
    causal = model.attention == "causal"
    activation = next(theirs for theirs, ours in _ACTIVATIONS.items() if ours == model.activation)
    return {
        "architectures": ["BertLMHeadModel" if causal else "BertForPreTraining"],
        "model_type": "bert",
        **{theirs: getattr(model, ours) for ours, theirs in _SIZES.items()},
        "hidden_act": activation,
        "is_decoder": causal,
        "pad_token_id": pad_token_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def from_config(config: Mapping[str, Any]) -> ModelConfig:
    """The inverse of `to_config`, computing in float32.

    Raises:
      UserError: not a BERT, a setting is missing, or one that this project does not have.
    """
    if config.get("model_type") != "bert":
        raise UserError(f"config.json has model_type {config.get('model_type')!r}; valid: 'bert'")
    missing = sorted({*_SIZES.values(), "hidden_act"} - set(config))
    if missing:
        raise UserError(f"config.json lacks {', '.join(missing)}")
    if config["hidden_act"] not in _ACTIVATIONS:
        valid = ", ".join(_ACTIVATIONS)
        raise UserError(f"config.json has hidden_act {config['hidden_act']!r}; valid: {valid}")
    return ModelConfig(
        **{ours: config[theirs] for ours, theirs in _SIZES.items()},
        activation=_ACTIVATIONS[config["hidden_act"]],
        objective="ltr" if config.get("is_decoder") else "mlm_nsp",
    )


def to_tensors(params: Params, model: ModelConfig) -> Tensors:
    """Parameters under Hugging Face's names and in its layout; the tied decoder is left out."""
    arrays = flatten_dict(params)
    tensors = {}
    for path, theirs in array_names(model, arrays):
        array = np.asarray(arrays[path])
        if path[-1] == "kernel":
            array = array.reshape(-1, arrays[*path[:-1], "bias"].size).T
        elif path[-1] == "bias":
            array = array.reshape(-1)
        tensors[theirs] = np.ascontiguousarray(array)
    return tensors


def from_tensors(tensors: Mapping[str, np.ndarray], model: ModelConfig) -> dict[str, Any]:
    """The inverse of `to_tensors`: nested float32 parameters.

    Raises:
      UserError: a tensor is missing or has another size than the configuration says.
    """
    shapes = flatten_dict(abstract_params(model))
    arrays = {}
    for path, theirs in array_names(model, shapes):
        tensor = _checked(tensors, theirs, shapes[path].size)
        arrays[path] = (tensor.T if path[-1] == "kernel" else tensor).reshape(shapes[path].shape)
    return unflatten_dict(arrays)


def abstract_params(model: ModelConfig) -> Params:
    """Shapes and types of a model's parameters; computes nothing."""
    ids = jnp.zeros((1, 2), jnp.int32)
    batch = dict.fromkeys(("input_ids", "input_mask", "segment_ids", "masked_lm_positions"), ids)
    init = functools.partial(BertForPreTraining(model).init, deterministic=True)
    return jax.eval_shape(init, jax.random.key(0), batch)["params"]


def _checked(tensors: Mapping[str, np.ndarray], name: str, size: int) -> np.ndarray:
    if name not in tensors:
        raise UserError(f"the model has no tensor {name}")
    if tensors[name].size != size:
        raise UserError(f"tensor {name} is {list(tensors[name].shape)}; config.json asks for {size} numbers")
    return tensors[name].astype(np.float32)
