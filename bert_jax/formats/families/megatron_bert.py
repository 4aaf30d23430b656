"""Megatron-LM's BERT (transformers/models/megatron_bert/modeling_megatron_bert.py).

BERT with normalization before each sublayer and after the last layer, and none of the embeddings.
"""

import dataclasses

from bert_jax.formats.families.bert import BERT, CLASSES, PARTS, tasks_of
from bert_jax.formats.families.family import layer_norm, same_classes

MEGATRON_BERT = dataclasses.replace(
    BERT,
    name="MegatronBERT",
    model_type="megatron-bert",
    defaults={
        "vocab_size": 29056,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    parts={
        **PARTS,
        "normalization": {
            "layer_norm": (
                *layer_norm("encoder/layer_{}/attention_layer_norm", "bert.encoder.layer.{}.attention.ln"),
                *layer_norm("encoder/layer_{}/output_layer_norm", "bert.encoder.layer.{}.ln"),
                *layer_norm("encoder/final_layer_norm", "bert.encoder.ln"),
            )
        },
        "normalization_place": {"pre": ()},
        "embedding_normalization": {"none": ()},
    },
    further_settings=lambda fields: {
        **BERT.further_settings(fields),
        "normalization_place": "pre",
        "embedding_normalization": "none",
    },
    classes={
        **same_classes("MegatronBert", CLASSES),
        "BertLMHeadModel": "MegatronBertForCausalLM",
    },
    tasks=tasks_of("MegatronBert"),
)
