"""ALBERT (transformers/models/albert/modeling_albert.py): groups of layers that share their parameters.

A linear layer stands behind the embeddings, and there is no ALBERT without one.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.formats.families.bert import DECODING, ENCODER, PARTS, SETTINGS, tasks_of
from bert_jax.formats.families.electra import PROJECTION, embedding_size_of
from bert_jax.formats.families.family import (
    Family,
    layer_norm,
    linear,
    renamed,
    renamed_parts,
    same_classes,
)
from bert_jax.model_config import ModelConfig

_NAMES = {
    "bert.": "albert.",
    ".encoder.layer.{}.": ".encoder.albert_layer_groups.{}.albert_layers.0.",
    ".attention.self.": ".attention.",
    ".attention.output.": ".attention.",
    ".intermediate.dense": ".ffn",
    "0.output.LayerNorm": "0.full_layer_layer_norm",
    ".output.dense": ".ffn_output",
    "electra.embeddings_project": "albert.encoder.embedding_hidden_mapping_in",
}


def _settings(fields: Mapping[str, Any]) -> dict[str, Any]:
    groups = fields["num_hidden_groups"]
    is_shared = groups != fields["num_hidden_layers"]
    return {**embedding_size_of(fields), "layer_groups": groups if is_shared else None}


def _fields(model: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        "embedding_size": model.embedding_width,
        "num_hidden_groups": model.num_distinct_layers,
        "inner_group_num": 1,
        "bos_token_id": ids["cls"],
        "eos_token_id": ids["sep"],
    }


ALBERT = Family(
    name="ALBERT",
    model_type="albert",
    prefix="albert.",
    settings=SETTINGS,
    defaults={
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_layers": 12,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    valid={"position_embedding_type": DECODING["position_embedding_type"], "inner_group_num": (1,)},
    further_settings=_settings,
    further_fields=_fields,
    head_dropouts=("classifier_dropout_prob",),
    pairing="sentence_order",
    table=(
        *renamed((*ENCODER, *PROJECTION), _NAMES),
        *linear("language_model/dense", "predictions.dense"),
        *layer_norm("language_model/layer_norm", "predictions.LayerNorm"),
        ("language_model/bias", "predictions.bias"),
        *linear("next_sentence/dense", "sop_classifier.classifier"),
    ),
    parts={
        **renamed_parts(PARTS, _NAMES, without=("embedding_size", "layer_groups")),
        "embedding_projection": {"linear": ()},
        "attention": {"bidirectional": ()},
    },
    poolers={"tanh": linear("pooler/dense", "albert.pooler")},
    decoder="predictions.decoder",
    classes=same_classes("Albert", ("BertModel", "BertForMaskedLM", "BertForPreTraining")),
    tasks=tasks_of("Albert"),
)
