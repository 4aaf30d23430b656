"""BERT (transformers/models/bert/modeling_bert.py)."""

from collections.abc import Mapping
from typing import Any

from bert_jax.formats.configuration import SIZES
from bert_jax.formats.families.family import Family, TaskClass, same_classes
from bert_jax.formats.tensors import Parts
from bert_jax.model_config import ModelConfig

SETTINGS = {**SIZES, "layer_norm_epsilon": "layer_norm_eps"}

ENCODER = (
    ("encoder/embeddings/word_embeddings/embedding", "bert.embeddings.word_embeddings.weight"),
    ("encoder/layer_{}/attention/query/kernel", "bert.encoder.layer.{}.attention.self.query.weight"),
    ("encoder/layer_{}/attention/query/bias", "bert.encoder.layer.{}.attention.self.query.bias"),
    ("encoder/layer_{}/attention/key/kernel", "bert.encoder.layer.{}.attention.self.key.weight"),
    ("encoder/layer_{}/attention/key/bias", "bert.encoder.layer.{}.attention.self.key.bias"),
    ("encoder/layer_{}/attention/value/kernel", "bert.encoder.layer.{}.attention.self.value.weight"),
    ("encoder/layer_{}/attention/value/bias", "bert.encoder.layer.{}.attention.self.value.bias"),
    ("encoder/layer_{}/attention/output/kernel", "bert.encoder.layer.{}.attention.output.dense.weight"),
    ("encoder/layer_{}/attention/output/bias", "bert.encoder.layer.{}.attention.output.dense.bias"),
)
POOLER = (
    ("pooler/dense/kernel", "bert.pooler.dense.weight"),
    ("pooler/dense/bias", "bert.pooler.dense.bias"),
)
HEADS = (
    ("language_model/dense/kernel", "cls.predictions.transform.dense.weight"),
    ("language_model/dense/bias", "cls.predictions.transform.dense.bias"),
    ("language_model/layer_norm/scale", "cls.predictions.transform.LayerNorm.weight"),
    ("language_model/layer_norm/bias", "cls.predictions.transform.LayerNorm.bias"),
    ("language_model/bias", "cls.predictions.bias"),
    ("next_sentence/dense/kernel", "cls.seq_relationship.weight"),
    ("next_sentence/dense/bias", "cls.seq_relationship.bias"),
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
            ("encoder/layer_{}/intermediate/kernel", "bert.encoder.layer.{}.intermediate.dense.weight"),
            ("encoder/layer_{}/intermediate/bias", "bert.encoder.layer.{}.intermediate.dense.bias"),
            ("encoder/layer_{}/output/kernel", "bert.encoder.layer.{}.output.dense.weight"),
            ("encoder/layer_{}/output/bias", "bert.encoder.layer.{}.output.dense.bias"),
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
TASKS = {
    "BertForSequenceClassification": TaskClass("BertForSequenceClassification", "classifier"),
    "BertForTokenClassification": TaskClass("BertForTokenClassification", "classifier"),
    "BertForMultipleChoice": TaskClass("BertForMultipleChoice", "classifier"),
    "BertForQuestionAnswering": TaskClass("BertForQuestionAnswering", "qa_outputs"),
}


def tasks_of(prefix: str) -> dict[str, TaskClass]:
    """BERT's names of fine-tuned classes -> those of a family, which begin with `prefix`."""
    return {name: TaskClass(name.replace("Bert", prefix), task.layer) for name, task in TASKS.items()}


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
    tasks=TASKS,
)
