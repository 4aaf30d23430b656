"""ELECTRA, discriminator and generator (transformers/models/electra/modeling_electra.py).

BERT's encoder, with a linear layer behind embeddings of another width. The generator's head and the pooler of
its classes have the exact GELU whatever the encoder has, so an encoder with another one is refused.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.formats.families.bert import DECODING, ENCODER, PARTS, SETTINGS, tasks_of
from bert_jax.formats.families.family import Family, TaskClass, layer_norm, linear, renamed, renamed_parts
from bert_jax.model_config import ModelConfig

_NAMES = {"bert.": "electra."}
PROJECTION = linear("encoder/embeddings_project", "electra.embeddings_project")


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
        *linear("language_model/dense", "generator_predictions.dense"),
        *layer_norm("language_model/layer_norm", "generator_predictions.LayerNorm"),
        ("language_model/bias", "generator_lm_head.bias"),
        *linear("replaced_token/dense", "discriminator_predictions.dense"),
        *linear("replaced_token/prediction", "discriminator_predictions.dense_prediction"),
    ),
    parts={
        **renamed_parts(PARTS, _NAMES, without=("embedding_size",)),
        "embedding_projection": {"none": (), "linear": PROJECTION},
        "attention": {"bidirectional": ()},
        "activation": {"gelu_exact": ()},
    },
    poolers={"gelu_exact": linear("pooler/dense", "classifier.dense")},
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
