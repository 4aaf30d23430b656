"""BERT (transformers/models/bert/modeling_bert.py)."""

from collections.abc import Mapping
from typing import Any

from bert_jax.formats.configuration import SIZES
from bert_jax.formats.families.family import Family, TaskClass, layer_norm, linear, same_classes
from bert_jax.formats.tensors import Parts
from bert_jax.model_config import ModelConfig

SETTINGS = {**SIZES, "layer_norm_epsilon": "layer_norm_eps"}

ENCODER = (
    ("encoder/embeddings/word_embeddings/embedding", "bert.embeddings.word_embeddings.weight"),
    *linear("encoder/layer_{}/attention/query", "bert.encoder.layer.{}.attention.self.query"),
    *linear("encoder/layer_{}/attention/key", "bert.encoder.layer.{}.attention.self.key"),
    *linear("encoder/layer_{}/attention/value", "bert.encoder.layer.{}.attention.self.value"),
    *linear("encoder/layer_{}/attention/output", "bert.encoder.layer.{}.attention.output.dense"),
)
POOLER = linear("pooler/dense", "bert.pooler.dense")
HEADS = (
    *linear("language_model/dense", "cls.predictions.transform.dense"),
    *layer_norm("language_model/layer_norm", "cls.predictions.transform.LayerNorm"),
    ("language_model/bias", "cls.predictions.bias"),
    *linear("next_sentence/dense", "cls.seq_relationship"),
)
PARTS: Parts = {
    "positions": {
        "learnt": (
            (
                "encoder/embeddings/position_embeddings/embedding",
                "bert.embeddings.position_embeddings.weight",
            ),
        ),
    },
    "segments": {
        "learnt": (
            (
                "encoder/embeddings/segment_embeddings/embedding",
                "bert.embeddings.token_type_embeddings.weight",
            ),
        ),
    },
    "normalization": {
        "layer_norm": (
            *layer_norm("encoder/embeddings/layer_norm", "bert.embeddings.LayerNorm"),
            *layer_norm(
                "encoder/layer_{}/attention_layer_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"
            ),
            *layer_norm("encoder/layer_{}/output_layer_norm", "bert.encoder.layer.{}.output.LayerNorm"),
        ),
    },
    "attention": {"bidirectional": (), "causal": ()},
    "normalization_place": {"post": ()},
    "embedding_normalization": {"same": ()},
    "query_key_normalization": {"none": ()},
    "embedding_size": {None: ()},
    "layer_groups": {None: ()},
    "biases": {"all": ()},
    "attention_window": {None: ()},
    "feed_forward": {
        "dense": (
            *linear("encoder/layer_{}/intermediate", "bert.encoder.layer.{}.intermediate.dense"),
            *linear("encoder/layer_{}/output", "bert.encoder.layer.{}.output.dense"),
        ),
    },
}
DECODING = {
    "position_embedding_type": ("absolute",),
    "add_cross_attention": (False,),
    "is_decoder": (False, True),
}


def attention_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The direction of attention, which `is_decoder` tells."""
    return {"attention": "causal" if fields["is_decoder"] else "bidirectional"}


def decoder_of(model: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    """The inverse of `attention_of`."""
    del ids
    return {"is_decoder": model.attention == "causal"}


CLASSES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertLMHeadModel",
    "BertForNextSentencePrediction",
)
_LAYERS_OF_TASKS = {
    "SequenceClassification": "classifier",
    "TokenClassification": "classifier",
    "MultipleChoice": "classifier",
    "QuestionAnswering": "qa_outputs",
}


def tasks_of(prefix: str) -> dict[str, TaskClass]:
    """BERT's names of fine-tuned classes -> those of a family, which begin with `prefix`."""
    return {
        f"BertFor{task}": TaskClass(f"{prefix}For{task}", layer) for task, layer in _LAYERS_OF_TASKS.items()
    }


BERT = Family(
    name="BERT",
    model_type="bert",
    prefix="bert.",
    settings=SETTINGS,
    valid=DECODING,
    further_settings=attention_of,
    further_fields=decoder_of,
    table=(*ENCODER, *HEADS),
    parts=PARTS,
    poolers={"tanh": POOLER},
    decoder="cls.predictions.decoder",
    classes=same_classes("Bert", CLASSES),
    tasks=tasks_of("Bert"),
)
