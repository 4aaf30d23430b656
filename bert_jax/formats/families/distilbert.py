"""DistilBERT (transformers/models/distilbert/modeling_distilbert.py): BERT's layers without segments.

Its epsilon is a constant, and its pooler, which fine-tuning adds, a linear layer and ReLU.
"""

from bert_jax.formats.families.bert import ENCODER, PARTS, tasks_of
from bert_jax.formats.families.family import Family, layer_norm, linear, renamed, renamed_parts

_EPSILON = 1e-12
_NAMES = {
    "bert.": "distilbert.",
    ".encoder.": ".transformer.",
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "output.LayerNorm": "output_layer_norm",
    "intermediate.dense": "ffn.lin1",
    "output.dense": "ffn.lin2",
}


DISTILBERT = Family(
    name="DistilBERT",
    model_type="distilbert",
    prefix="distilbert.",
    settings={
        "vocab_size": "vocab_size",
        "num_layers": "n_layers",
        "hidden_size": "dim",
        "num_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_position_embeddings": "max_position_embeddings",
        "dropout_rate": "dropout",
        "attention_dropout_rate": "attention_dropout",
        "initializer_range": "initializer_range",
    },
    defaults={"n_layers": 6},
    activation="activation",
    further_settings=lambda fields: {"type_vocab_size": 0, "layer_norm_epsilon": _EPSILON},
    head_dropouts=("seq_classif_dropout", "qa_dropout"),
    table=(
        *renamed(ENCODER, _NAMES),
        *linear("language_model/dense", "vocab_transform"),
        *layer_norm("language_model/layer_norm", "vocab_layer_norm"),
        ("language_model/bias", "vocab_projector.bias"),
    ),
    parts={
        **renamed_parts(PARTS, _NAMES),
        "segments": {"none": ()},
        "attention": {"bidirectional": ()},
        "layer_norm_epsilon": {_EPSILON: ()},
    },
    poolers={"relu": linear("pooler/dense", "pre_classifier")},
    decoder="vocab_projector",
    classes={"BertModel": "DistilBertModel", "BertForMaskedLM": "DistilBertForMaskedLM"},
    tasks=tasks_of("DistilBert"),
)
