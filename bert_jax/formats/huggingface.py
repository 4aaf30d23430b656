"""Reads and writes Hugging Face's models: `config.json`, `model.safetensors`, tokenizer files.

Their linear layers store kernels as [out, in] where flax has [in, out], with the heads' axes joined.
Apart from that mostly names differ, which are those of a family (`families/`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert_jax.finetuning_config import TransformersHead
from bert_jax.formats.families import FAMILIES, nearest_family
from bert_jax.formats.families.family import Family, TaskClass, linear
from bert_jax.formats.google_tf1 import CONFIG_FILE as GOOGLE_CONFIG_FILE
from bert_jax.formats.huggingface_tokenizer import read_tokenizer, special_id, write_tokenizer
from bert_jax.formats.huggingface_weights import WEIGHTS_FILE, read_weights, weight_files
from bert_jax.formats.model_card import model_card
from bert_jax.formats.pretrained import PretrainedModel, TaskHead, objective_of, parameter_shapes
from bert_jax.formats.tensors import (
    Entry,
    Tensors,
    describe_missing,
    from_tensors,
    left_out,
    save_tensors,
    to_tensors,
)
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import objective_name
from data_pipeline.atomic import write_json
from data_pipeline.config import Pairing
from data_pipeline.corpus.special_tokens import special_tokens
from data_pipeline.errors import UserError
from data_pipeline.json_text import read_object

CONFIG_FILE = "config.json"
_CLASS_OF_HEAD = {
    "next_sentence": "BertForNextSentencePrediction",
    "replaced_token": "ElectraForPreTraining",
}
"""Head -> BERT's name of the class for a model without an objective that has this head."""
_WITHOUT_POOLER = ("BertForMaskedLM", "BertLMHeadModel", "ElectraForPreTraining")
"""Classes of pretrained models to which a pooler would be an unexpected key."""
_OURS = "bert_jax"
"""Field of `config.json` for what transformers has no field for."""
_POSITIONS = ("encoder", "embeddings", "position_embeddings", "embedding")


def recognises(directory: Path) -> bool:
    """Whether a directory is meant to hold such a model; Google's may have a `config.json` too."""
    if not (directory / CONFIG_FILE).is_file():
        return False
    return bool(weight_files(directory)) or not (directory / GOOGLE_CONFIG_FILE).is_file()


def read(directory: Path) -> PretrainedModel:
    """Reads a model of any of the classes of a family.

    Raises:
      UserError: a file is missing or damaged; the architecture is another one; the weights are in
        `pytorch_model.bin` and torch is not installed.
    """
    path = directory / CONFIG_FILE
    fields = read_object(path)
    family = _family(fields, path)
    config = family.read_config(fields, path)
    tensors = read_weights(directory)
    tokenizer, vocabulary = read_tokenizer(directory)
    padding = {"pad_token_id": 0, **family.defaults, **fields}["pad_token_id"]
    if family.positions_after_padding:
        _check_padding(padding, tokenizer, path)
    tensors = _modern_names(tensors, family, directory)
    table = family.entries(config)
    tensors = _with_pooler(_from_first_position(tensors, family, table, padding), family)
    params = from_tensors(tensors, table, parameter_shapes(config), family.prefix, directory)
    return PretrainedModel(
        name=directory.resolve().name,
        config=config,
        params=params,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        family=family.model_type,
        objective=objective_of(config, params, _pairing(fields, family)),
        left_out=left_out(tensors, table),
    )


def write(directory: Path, model: PretrainedModel) -> None:
    """Writes a model that transformers loads into an existing directory: weights, config, tokenizer, card."""
    family = family_of(model)
    loader = transformers_class(model)
    special = special_tokens(model.tokenizer)
    names = {"pad": special.pad, "cls": special.cls, "sep": special.sep}
    ids = {role: special_id(model.tokenizer, token) for role, token in names.items()}
    # Both refuse what they cannot hold, before anything is written.
    tensors = _with_rows_before_positions(_tensors(model), family, model.config, ids["pad"])
    fields = family.write_config(model.config, ids)
    write_tokenizer(directory, model.tokenizer, model.vocabulary, model.config)
    write_json(
        directory / CONFIG_FILE,
        {
            "architectures": [loader],
            **fields,
            "tie_word_embeddings": True,
            "dtype": "float32",
            **_pairing_fields(model),
            **_task_settings(model),
        },
    )
    if loader == family.classes["BertModel"]:
        of_encoder = (name for name in tensors if name.startswith(family.prefix))
        tensors = {name.removeprefix(family.prefix): tensors[name] for name in of_encoder}
    # transformers refuses files whose metadata does not name a framework.
    save_tensors(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    card = model_card(model, loader, sum(tensor.size for tensor in tensors.values()))
    (directory / "README.md").write_text(card, encoding="utf-8")


def family_of(model: PretrainedModel) -> Family:
    """The family that a model was read as, or else the first that has its parts and its class."""
    if model.family:
        return FAMILIES[model.family]
    return nearest_family(model.config, model.objective.transformers_class if model.objective else None)


def transformers_class(model: PretrainedModel) -> str:
    """Name of the transformers class that has the same heads as a model.

    Raises:
      UserError: transformers has no class for the model.
    """
    if model.head is not None:
        return _task_class(model, model.head).name
    family, bert_class = family_of(model), _bert_class(model)
    if bert_class is None or bert_class not in family.classes:
        trained = f", trained by objective {objective_name(model.objective)}" if model.objective else ""
        kind = "" if family.model_type == "bert" else f" among those of {family.name}"
        raise UserError(
            f"transformers has no class{kind} for {model.name}{trained}{_what_the_class_lacks(model)}; "
            "`bert-jax convert --format npz` writes it"
        )
    return family.classes[bert_class]


def _what_the_class_lacks(model: PretrainedModel) -> str:
    """Which part of a model the class of its objective lacks, for messages; empty if that has none."""
    bert_class = _bert_class(model)
    if bert_class is None or model.family:
        return ""
    for family in FAMILIES.values():
        missing = describe_missing(family.parts, model.config)
        if bert_class in family.classes and missing:
            return f"; {family.classes[bert_class]} has no {missing}"
    return ""


def _bert_class(model: PretrainedModel) -> str | None:
    """BERT's name of a pretrained model's class; None if transformers has none."""
    if model.objective is not None:
        return model.objective.transformers_class
    heads = (head for head in _CLASS_OF_HEAD if head in model.params)
    return _CLASS_OF_HEAD.get(next(heads, ""), "BertModel")


def _family(fields: Mapping[str, Any], path: Path) -> Family:
    """The family that a `config.json` names; a file of 2018 names none and is BERT's."""
    name = fields.get("model_type", "bert")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UserError(f"{path} has model_type {name!r}; valid: {', '.join(map(repr, FAMILIES))}")
    return FAMILIES[name]


def _exported_head(model: PretrainedModel, head: TaskHead) -> TransformersHead:
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


def _task_class(model: PretrainedModel, head: TaskHead) -> TaskClass:
    family, bert_class = family_of(model), _exported_head(model, head).class_name
    if bert_class not in family.tasks:
        raise UserError(
            f"transformers has no class among those of {family.name} for {model.name} ({head.kind}); "
            "bert-jax predict applies it"
        )
    return family.tasks[bert_class]


def _task_settings(model: PretrainedModel) -> dict[str, Any]:
    """The settings of `config.json` that describe the head of a fine-tuned model."""
    if model.head is None:
        return {}
    problem_type = _exported_head(model, model.head).problem_type
    labels = ("value",) if problem_type == "regression" else model.head.labels
    named = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    return {
        **dict.fromkeys(family_of(model).head_dropouts, model.config.dropout_rate),
        **(named if labels else {}),
        **({"problem_type": problem_type} if problem_type else {}),
    }


def _tensors(model: PretrainedModel) -> dict[str, np.ndarray]:
    """All arrays of a model by the names of its class."""
    family = family_of(model)
    pooler = model.config.pooler
    if pooler not in family.poolers and ("pooler" in model.params or model.head is not None):
        raise UserError(
            f"transformers has no {family.name} with pooler {pooler}, only {', '.join(family.poolers)}; "
            + ("bert-jax predict applies it" if model.head else "`bert-jax convert --format npz` writes it")
        )
    if model.head is None:
        left_out = {"pooler"} if _bert_class(model) in _WITHOUT_POOLER else set()
        params = {part: model.params[part] for part in model.params.keys() - left_out}
        return to_tensors(params, family.entries(model.config))
    task = _task_class(model, model.head)
    table = (*family.table, *linear("classifier", task.layer))
    poolers = {pooler: linear("pooler/dense", task.pooler)} if task.pooler else family.poolers
    params = {**model.params, "classifier": model.head.params["classifier"]}
    return to_tensors(params, dataclasses.replace(family, table=table, poolers=poolers).entries(model.config))


def _pairing_fields(model: PretrainedModel) -> dict[str, Any]:
    """What the head on pairs was trained to predict, if it was."""
    pairing = getattr(model.objective, "pairing", None)
    return {_OURS: {"pairing": pairing}} if pairing else {}


def _pairing(fields: Mapping[str, Any], family: Family) -> Pairing:
    """What a head on pairs was trained to predict: what `write` has stored, or else what its family's was."""
    ours = fields.get(_OURS)
    return ours.get("pairing", family.pairing) if isinstance(ours, Mapping) else family.pairing


def _with_pooler(tensors: dict[str, np.ndarray], family: Family) -> dict[str, np.ndarray]:
    """The tensors with the layer before a classifier as the pooler, where its class has a name of its own."""
    rows = dict(next(iter(family.poolers.values())))
    for name in (task.pooler for task in family.tasks.values() if task.pooler):
        if f"{name}.weight" in tensors and f"{name}.bias" in tensors:
            tensors = {
                **tensors,
                rows["pooler/dense/kernel"]: tensors[f"{name}.weight"],
                rows["pooler/dense/bias"]: tensors[f"{name}.bias"],
            }
    return tensors


def _check_padding(padding: int, tokenizer: Tokenizer, config_file: Path) -> None:
    """Raises UserError if config and tokenizer differ in the id of padding, from which positions count."""
    pad = special_tokens(tokenizer).pad
    if (own := special_id(tokenizer, pad)) != padding:
        raise UserError(
            f"{config_file} has pad_token_id {padding}, and the tokenizer's {pad} is {own}; positions are "
            "counted from it, so make them the same"
        )


def _from_first_position(
    tensors: Tensors, family: Family, table: Sequence[Entry], padding: int
) -> dict[str, np.ndarray]:
    """The tensors with the position table from its first position on; one without rows is left as it is."""
    tables = [entry.name for entry in table if entry.path == _POSITIONS and entry.name in tensors]
    names = [name for name in tables if tensors[name].ndim]
    return {**tensors, **{name: tensors[name][family.rows_before_positions(padding) :] for name in names}}


def _with_rows_before_positions(
    tensors: dict[str, np.ndarray], family: Family, model: ModelConfig, padding: int
) -> dict[str, np.ndarray]:
    """The inverse of `_from_first_position`; no token reads the rows in front, which are zeros."""
    rows = ((family.rows_before_positions(padding), 0), (0, 0))
    names = [entry.name for entry in family.entries(model) if entry.path == _POSITIONS]
    return {**tensors, **{name: np.pad(tensors[name], rows) for name in names}}


def _modern_names(tensors: Tensors, family: Family, directory: Path) -> dict[str, np.ndarray]:
    """The tensors under the names of a current class with heads, without those that are not parameters.

    Raises:
      UserError: the model's output embeddings are not its word embeddings.
    """
    names = {
        name: name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        for name in tensors
    }
    words = family.name_of("encoder/embeddings/word_embeddings/embedding")
    if words.removeprefix(family.prefix) in tensors:  # the class without heads
        names = {
            old: f"{family.prefix}{new}" if new.startswith(family.modules) else new
            for old, new in names.items()
        }
    renamed = {names[old]: tensor for old, tensor in tensors.items()}
    decoder, decoder_bias = f"{family.decoder}.weight", f"{family.decoder}.bias"
    if decoder in renamed and not np.array_equal(renamed[decoder], renamed.get(words, [])):
        raise UserError(f"{directory} has output embeddings of their own; only tied ones are supported")
    bias = family.name_of("language_model/bias")
    if bias != decoder_bias and decoder_bias in renamed:
        # The same array; some files have it under this name only.
        renamed.setdefault(bias, renamed.pop(decoder_bias))
    constants = {f"{family.prefix}embeddings.{name}" for name in ("position_ids", "token_type_ids")}
    return {name: tensor for name, tensor in renamed.items() if name not in {decoder, *constants}}
