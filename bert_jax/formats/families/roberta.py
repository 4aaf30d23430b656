"""RoBERTa and XLM-RoBERTa (transformers/models/roberta/modeling_roberta.py).

BERT's encoder with positions that count from the id of padding + 1. The language model head has the exact
GELU whatever the encoder has, so an encoder with another one is refused.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.formats.families.bert import (
    DECODING,
    ENCODER,
    PARTS,
    POOLER,
    SETTINGS,
    attention_of,
    decoder_of,
    tasks_of,
)
from bert_jax.formats.families.family import (
    Family,
    TaskClass,
    layer_norm,
    linear,
    renamed,
    renamed_parts,
    same_classes,
)
from bert_jax.model_config import ModelConfig
from data_pipeline.checks import check_not_negative

_NAMES = {"bert.": "roberta."}


def _settings(fields: Mapping[str, Any]) -> dict[str, Any]:
    check_not_negative("pad_token_id", fields["pad_token_id"])
    return {
        **attention_of(fields),
        "max_position_embeddings": fields["max_position_embeddings"] - fields["pad_token_id"] - 1,
    }


def _fields(model: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        **decoder_of(model, ids),
        "max_position_embeddings": model.max_position_embeddings + ids["pad"] + 1,
        "bos_token_id": ids["cls"],
        "eos_token_id": ids["sep"],
    }


ROBERTA = Family(
    name="RoBERTa",
    model_type="roberta",
    prefix="roberta.",
    settings=SETTINGS,
    defaults={"vocab_size": 50265, "max_position_embeddings": 512, "pad_token_id": 1},
    valid=DECODING,
    activations={"gelu": "gelu_exact"},
    further_settings=_settings,
    further_fields=_fields,
    positions_after_padding=True,
    table=(
        *renamed(ENCODER, _NAMES),
        *linear("language_model/dense", "lm_head.dense"),
        *layer_norm("language_model/layer_norm", "lm_head.layer_norm"),
        ("language_model/bias", "lm_head.bias"),
    ),
    parts={**renamed_parts(PARTS, _NAMES), "activation": {"gelu_exact": ()}},
    poolers={"tanh": renamed(POOLER, _NAMES)},
    decoder="lm_head.decoder",
    classes={
        **same_classes("Roberta", ("BertModel", "BertForMaskedLM")),
        "BertLMHeadModel": "RobertaForCausalLM",
    },
    tasks={
        **tasks_of("Roberta"),
        "BertForSequenceClassification": TaskClass(
            "RobertaForSequenceClassification", "classifier.out_proj", pooler="classifier.dense"
        ),
    },
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    name="XLM-RoBERTa",
    model_type="xlm-roberta",
    defaults={**ROBERTA.defaults, "vocab_size": 30522},
    classes={bert: f"XLM{name}" for bert, name in ROBERTA.classes.items()},
    tasks={bert: dataclasses.replace(task, name=f"XLM{task.name}") for bert, task in ROBERTA.tasks.items()},
)
