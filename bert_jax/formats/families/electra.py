"""ELECTRA, discriminator and generator (transformers/models/electra/modeling_electra.py).

BERT's encoder, with a linear layer behind embeddings of another width. The generator's head and the pooler of
its classes have the exact GELU whatever the encoder has, so an encoder with another one is refused.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.formats.families.bert import DECODING, ENCODER, PARTS, SETTINGS, tasks_of
from bert_jax.formats.families.family import Family, TaskClass, renamed, renamed_parts
from bert_jax.model_config import ModelConfig

_NAMES = {"bert.": "electra."}
PROJECTION = (
    ("encoder/embeddings_project/kernel", "electra.embeddings_project.weight"),
    ("encoder/embeddings_project/bias", "electra.embeddings_project.bias"),
)


def embedding_size_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The width of the embeddings, where it is not that of the layers."""
    size = fields["embedding_size"]
    return {"embedding_size": None if size == fields["hidden_size"] else size}


def _fields(model: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    del ids
    return {"embedding_size": model.embedding_width}


ELECTRA = Family(
    name="ELECTRA",
    model_type="electra",
    prefix="electra.",
    settings=SETTINGS,
    defaults={
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    valid={**DECODING, "is_decoder": (False,)},
    activations={"gelu": "gelu_exact"},
    further_settings=embedding_size_of,
    further_fields=_fields,
    table=(
        *renamed(ENCODER, _NAMES),
        ("language_model/dense/kernel", "generator_predictions.dense.weight"),
        ("language_model/dense/bias", "generator_predictions.dense.bias"),
        ("language_model/layer_norm/scale", "generator_predictions.LayerNorm.weight"),
        ("language_model/layer_norm/bias", "generator_predictions.LayerNorm.bias"),
        ("language_model/bias", "generator_lm_head.bias"),
        ("replaced_token/dense/kernel", "discriminator_predictions.dense.weight"),
        ("replaced_token/dense/bias", "discriminator_predictions.dense.bias"),
        ("replaced_token/prediction/kernel", "discriminator_predictions.dense_prediction.weight"),
        ("replaced_token/prediction/bias", "discriminator_predictions.dense_prediction.bias"),
    ),
    parts={
        **{name: rows for name, rows in renamed_parts(PARTS, _NAMES).items() if name != "embedding_size"},
        "embedding_projection": {"none": (), "linear": PROJECTION},
        "attention": {"bidirectional": ()},
        "activation": {"gelu_exact": ()},
    },
    poolers={
        "gelu_exact": (
            ("pooler/dense/kernel", "classifier.dense.weight"),
            ("pooler/dense/bias", "classifier.dense.bias"),
        )
    },
    decoder="generator_lm_head",
    classes={
        "BertModel": "ElectraModel",
        "BertForMaskedLM": "ElectraForMaskedLM",
        "ElectraForPreTraining": "ElectraForPreTraining",
    },
    tasks={
        **tasks_of("Electra"),
        "BertForSequenceClassification": TaskClass("ElectraForSequenceClassification", "classifier.out_proj"),
        "BertForMultipleChoice": TaskClass(
            "ElectraForMultipleChoice", "classifier", pooler="sequence_summary.summary"
        ),
    },
)
